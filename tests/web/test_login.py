from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from gateway.config.machine import SystemClock
from gateway.store.people import tokens
from gateway.web.links import LoginLinks
from tests.web.conftest import BEARER, Running, Web

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Later(SystemClock):
    """The real time, moved on by a test."""

    by: timedelta = timedelta()

    def now(self) -> datetime:
        return super().now() + self.by


def test_a_link_is_good_once():
    links = LoginLinks()
    secret = links.issue("http://127.0.0.1:8787/", NOW).removeprefix("http://127.0.0.1:8787/login#t=")
    assert len(secret) >= 43
    assert not links.redeem(secret + "x", NOW)
    assert links.redeem(secret, NOW)
    assert not links.redeem(secret, NOW)


def test_a_link_is_good_for_ten_minutes():
    links = LoginLinks()
    secret = links.issue("http://x", NOW).partition("#t=")[2]
    assert not links.redeem(secret, NOW + timedelta(minutes=10))


def test_only_so_many_links_are_open_at_once():
    links = LoginLinks()
    secrets = [links.issue("http://x", NOW).partition("#t=")[2] for _ in range(101)]
    assert not links.redeem(secrets[0], NOW)
    assert links.redeem(secrets[-1], NOW)


async def test_a_link_becomes_a_strict_cookie(web: Web):
    link = web.backend.access.sign_in_link(web.url).partition("#t=")[2]
    answer = await web.client.post("/login", json={"secret": link}, headers=web.at_page)
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("claw=")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert (await web.client.get("/login/state", headers=web.at_page)).json() == {"signed_in": True}


async def test_behind_https_the_cookie_is_bound_to_the_host(web: Web):
    answer = await web.client.get("/login/state", headers={"Cookie": "__Host-claw=x"})
    assert answer.json() == {"signed_in": False}


async def test_a_fresh_link_can_be_had_by_an_admin_only(web: Web):
    answer = await web.client.post("/api/login-links", headers=BEARER)
    assert answer.status_code == 201
    assert answer.json()["url"].startswith(f"{web.page}/login#t=")
    assert answer.json()["expires_in"] == 600


async def test_wrong_links_are_refused_and_slowed_down(web: Web):
    headers = web.at_page
    codes = [
        (await web.client.post("/login", json={"secret": f"no{n}"}, headers=headers)).status_code for n in range(25)
    ]
    assert codes[0] == 401
    assert codes[-1] == 429


async def test_a_wrong_body_is_named(web: Web):
    answer = await web.client.post("/login", json={}, headers=web.at_page)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "secret"


async def test_signed_out_pages_lead_to_the_sign_in(web: Web):
    answer = await web.client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


async def test_signing_out_ends_this_session_and_everywhere_ends_all(web: Web):
    async with web.sign_in() as one, web.sign_in() as two, web.sign_in() as three:
        assert (await one.post("/logout")).status_code == 303
        assert (await one.get("/login/state")).json() == {"signed_in": False}
        assert (await two.get("/login/state")).json() == {"signed_in": True}
        await two.post("/logout?everywhere=true")
        assert (await three.get("/login/state")).json() == {"signed_in": False}


@pytest.mark.parametrize(
    ("steps", "signed_in"),
    [
        ([timedelta(hours=11)], True),
        ([timedelta(hours=13)], False),
        ([timedelta(hours=11 * n) for n in range(1, 5)], True),
        ([timedelta(hours=11 * n) for n in range(1, 70)], False),
    ],
    ids=["used", "idle", "used again and again", "too old"],
)
async def test_a_session_ends_when_idle_and_when_old(running: Running, steps: list[timedelta], signed_in: bool):
    clock = Later()
    started = await running.start(clock=clock)
    async with started.web.sign_in() as browser:
        for clock.by in steps:
            state = (await browser.get("/login/state")).json()
    await started.stop()
    assert state == {"signed_in": signed_in}


async def test_a_name_is_taken_while_its_token_lives(web: Web):
    database, owner = web.backend.database, web.backend.owner.id
    await tokens.create(database, owner, "phone", ["chat"])
    with pytest.raises(Exception, match="a token named phone already exists"):
        await tokens.create(database, owner, "phone", ["chat"])
    assert await tokens.revoke(database, "phone")
    assert not await tokens.revoke(database, "phone")
    _, plain = await tokens.create(database, owner, "phone", ["chat", "read"])
    found = await tokens.find(database, plain)
    assert found is not None
    assert list(found.scopes) == ["chat", "read"]


@pytest.mark.parametrize("scope", ["everything", "files:notes"])
async def test_only_known_scopes_are_given(web: Web, scope: str) -> None:
    with pytest.raises(ValueError, match="is not a valid Scope"):
        await tokens.create(web.backend.database, web.backend.owner.id, "phone", [scope])


async def test_the_environments_code_signs_in_once_whatever_restarts(running: Running):
    code = "5f" * 8 + "0123456789abcdef"
    started = await running.start(first_code=code)
    web = started.web
    assert "SUPACLAW_SIGN_IN_CODE" in (await web.client.get("/login", headers=web.at_page)).text
    assert (await web.client.post("/login", json={"secret": code[:-1]}, headers=web.at_page)).status_code == 401
    assert (await web.client.post("/login", json={"secret": code}, headers=web.at_page)).json() == {"signed_in": True}
    await started.stop()
    again = await running.start(first_code=code)
    refused = await again.web.client.post("/login", json={"secret": code}, headers=again.web.at_page)
    assert (refused.status_code, "once, ever" in refused.text) == (401, True)
    await again.stop()


async def test_without_a_code_nothing_empty_signs_in(web: Web):
    assert (await web.client.post("/login", json={"secret": ""}, headers=web.at_page)).status_code == 401
