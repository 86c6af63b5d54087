"""Finding 9: no other program on this machine gets the page's cookie, and no other page acts with it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web as aiohttp_web
from playwright.async_api import Browser, BrowserContext, Page

from gateway.domain.errors import TryAgainLater
from gateway.store.people import tokens
from tests.web.conftest import BEARER, PAGE_NAME, Running, Web

HOSTILE = Path(__file__).with_name("hostile.js").read_text("utf-8")


@dataclass
class Neighbour:
    """Another program's web server on this machine: it keeps all it is sent."""

    port: int = 0
    got: list[Mapping[str, str]] = field(default_factory=list)

    async def answer(self, request: aiohttp_web.Request) -> aiohttp_web.Response:
        self.got.append(dict(request.headers))
        return aiohttp_web.Response(text="<!doctype html><title>hello</title><body>", content_type="text/html")

    def cookies(self) -> set[str]:
        return {headers["Cookie"] for headers in self.got if "Cookie" in headers}


@pytest.fixture
async def neighbour() -> AsyncIterator[Neighbour]:
    neighbour = Neighbour()
    app = aiohttp_web.Application()
    app.router.add_route("*", "/{path:.*}", neighbour.answer)
    runner = aiohttp_web.AppRunner(app)
    await runner.setup()
    await aiohttp_web.TCPSite(runner, "127.0.0.1", 0).start()
    neighbour.port = runner.addresses[0][1]
    yield neighbour
    await runner.cleanup()


async def signed_in(browser: Browser, web: Web) -> tuple[BrowserContext, Page]:
    """The chat in a browser, by a printed link."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(web.backend.access.sign_in_link(web.url))
    await page.wait_for_selector("#connection[data-state=on]")
    return context, page


async def visit(context: BrowserContext, neighbour: Neighbour, web: Web) -> None:
    """Open the other server, by every name it has and as a browser comes upon it."""
    page = await context.new_page()
    for host in ("127.0.0.1", "localhost", "claw.localhost", "anything.localhost"):
        await page.goto(f"http://{host}:{neighbour.port}/")
        await page.evaluate("fetch('/again', {credentials: 'include'}).then(got => got.text())")
        await page.evaluate(f"fetch('http://127.0.0.1:{neighbour.port}/', {{mode: 'no-cors', credentials: 'include'}})")
    await page.close()


async def replayed(web: Web, headers: Mapping[str, str]) -> set[int]:
    """What the gateway answers to everything the other server got, at every name, even at the page's own."""
    codes = set()
    carried = {name: value for name, value in headers.items() if name.lower() in {"cookie", "authorization"}}
    for host in (f"127.0.0.1:{web.port}", f"localhost:{web.port}", f"{PAGE_NAME}:{web.port}"):
        own = {**carried, "Host": host, "Origin": f"http://{host}"}
        codes.add((await web.client.get("/chat/events", headers=own)).status_code)
        codes.add((await web.client.post("/chat", data={"text": "x", "client_id": "1"}, headers=own)).status_code)
        codes.add((await web.client.get("/api/status", headers=own)).status_code)
    return codes


async def test_a_server_on_another_port_gets_nothing_that_works(browser: Browser, web: Web, neighbour: Neighbour):
    context, page = await signed_in(browser, web)
    await visit(context, neighbour, web)
    assert len(neighbour.got) >= 8
    assert neighbour.cookies() == set()
    assert not any(PAGE_NAME in value for headers in neighbour.got for value in headers.values())
    for headers in neighbour.got[:2]:
        assert await replayed(web, headers) == {401}
    await page.reload()
    await page.wait_for_selector("#connection[data-state=on]")
    await context.close()


async def test_a_link_in_an_answer_does_not_tell_the_pages_name(browser: Browser, web: Web, neighbour: Neighbour):
    web.model.says(f"See [this](http://127.0.0.1:{neighbour.port}/).")
    context, page = await signed_in(browser, web)
    await page.fill("#text", "hi")
    await page.keyboard.press("Enter")
    async with context.expect_page() as opening:
        await page.click(".assistant .md a")
    await (await opening.value).wait_for_load_state()
    assert neighbour.got
    assert not any(PAGE_NAME in value for headers in neighbour.got for value in headers.values())
    await context.close()


async def test_at_127_0_0_1_the_cookie_would_be_taken(browser: Browser, running: Running, neighbour: Neighbour):
    """The control: this is how the test above looks when it has something to find."""
    started = await running.start(page_name="127.0.0.1")
    context, _ = await signed_in(browser, started.web)
    await visit(context, neighbour, started.web)
    assert any(cookie.startswith("claw=") for cookie in neighbour.cookies())
    await context.close()
    await started.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("served", ["127.0.0.1", "localhost", "evil.localhost", PAGE_NAME])
@pytest.mark.parametrize("aimed", ["127.0.0.1", PAGE_NAME])
async def test_a_page_on_another_port_neither_reads_nor_acts(
    browser: Browser, web: Web, neighbour: Neighbour, served: str, aimed: str
):
    context, page = await signed_in(browser, web)
    hostile = await context.new_page()
    await hostile.goto(f"http://{served}:{neighbour.port}/")
    tried = await hostile.evaluate(HOSTILE, f"http://{aimed}:{web.port}")
    assert len(tried) == 11
    assert set(tried.values()) == {"nothing"}, tried
    async with web.backend.database.connection() as conn:
        assert await conn.fetchval("select count(*) from messages") == 0
        assert await conn.fetchval("select count(*) from api_tokens where revoked_at is not null") == 0
    await page.reload()
    await page.wait_for_selector("#connection[data-state=on]")
    await context.close()


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}"])
async def test_a_cookie_counts_at_the_pages_own_name_only(web: Web, host: str):
    async with web.sign_in() as browser:
        there = host.format(port=web.port)
        sent = {"Host": there, "Origin": f"http://{there}"}
        assert (await browser.get("/login/state", headers=sent)).json() == {"signed_in": False}
        assert (await browser.get("/chat/events", headers=sent)).status_code == 401
        assert (await browser.get("/", headers=sent)).headers["location"] == "/login"
        assert (await browser.get("/login/state")).json() == {"signed_in": True}


async def test_a_link_is_neither_redeemed_nor_used_up_at_127_0_0_1(web: Web):
    secret = {"secret": web.backend.access.sign_in_link(web.url).partition("#t=")[2]}
    refused = await web.client.post("/login", json=secret, headers={"Origin": web.url})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_address")
    assert "set-cookie" not in refused.headers
    assert (await web.client.post("/login", json=secret, headers=web.at_page)).status_code == 200


@pytest.mark.parametrize("port", [9, 8787])
async def test_a_tunnel_may_have_another_port_on_its_other_end(web: Web, port: int):
    at = {"Host": f"{PAGE_NAME}:{port}", "Origin": f"http://{PAGE_NAME}:{port}"}
    secret = {"secret": web.backend.access.sign_in_link(web.url).partition("#t=")[2]}
    assert (await web.client.post("/login", json=secret, headers=at)).status_code == 200
    assert (await web.client.get("/login/state", headers=at)).json() == {"signed_in": True}


@pytest.mark.parametrize("host", ["claw-0.localhost", f"x.{PAGE_NAME}", f"{PAGE_NAME}.example.org"])
async def test_no_name_like_it_is_served(web: Web, host: str):
    assert (await web.client.get("/health", headers={"Host": host})).status_code == 421


@pytest.mark.parametrize("authorization", ["Bearer x", "Basic YTpi", "x", BEARER["Authorization"]])
@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:{port}", "null", None])
async def test_no_header_lets_a_foreign_page_use_the_cookie(web: Web, authorization: str, origin: str | None):
    async with web.sign_in() as browser:
        del browser.headers["Origin"]
        sent = {"Authorization": authorization}
        if origin is not None:
            sent["Origin"] = origin.format(port=web.port)
        answer = await browser.post("/chat", data={"text": "hi", "client_id": "1"}, headers=sent)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_origin")
        assert (await browser.post("/logout?everywhere=true", headers=sent)).status_code == 403
        if origin:
            assert (await browser.get("/chat/events", headers=sent)).status_code == 403


@pytest.mark.parametrize("authorization", ["Bearer x", "Basic YTpi", "x"])
async def test_a_wrong_credential_switches_no_check_off(web: Web, authorization: str):
    secret = web.backend.access.sign_in_link(web.url).partition("#t=")[2]
    sent = {**web.at_page, "Origin": "http://evil.example", "Authorization": authorization}
    assert (await web.client.post("/login", json={"secret": secret}, headers=sent)).status_code == 403
    assert (await web.client.post("/api/messages", json={}, headers=sent)).status_code in {401, 403}


async def test_a_valid_token_comes_from_wherever_it_is_used(web: Web):
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "app", ["chat"])
    sent = {"Authorization": f"Bearer {plain}", "Origin": "app://notes", "Sec-Fetch-Site": "cross-site"}
    body = {"text": "hi", "client_id": "1"}
    assert (await web.client.post("/api/messages", json=body, headers=sent)).status_code == 202
    assert (await web.client.get("/v1/models", headers=sent)).status_code == 200
    await tokens.revoke(web.backend.database, "app")
    assert (await web.client.get("/v1/models", headers=sent)).status_code in {401, 403}


async def test_with_the_database_away_a_foreign_page_gets_in_no_more_than_otherwise(
    web: Web, monkeypatch: pytest.MonkeyPatch
):
    async def away(*_: object) -> None:
        raise TryAgainLater("the database is away")

    monkeypatch.setattr(tokens, "find", away)
    sent = {"Authorization": "Bearer claw_x", "Origin": "http://evil.example"}
    assert (await web.client.post("/api/messages", json={}, headers=sent)).status_code in {403, 503}
