import hashlib

import httpx
import pytest

from gateway.domain.principals import Label
from gateway.ingest.output import LOCKED
from gateway.secrets.facts import Binding
from gateway.store.files import files
from gateway.store.people import principals
from tests.ingest.samples import unlockable_pdf
from tests.web.conftest import BEARER, Web

VALUE = "hush-hush-hush"
FORM = {
    "name": "WEATHER_KEY",
    "value": VALUE,
    "hosts": "api.example.org, https://b.example.org",
    "tools": "weather",
    "kind": "header",
    "place": "Authorization",
}
BOUND = Binding.of(["api.example.org", "b.example.org"], ["weather"], "header:Authorization")


async def stored(web: Web) -> list[tuple[object, ...]]:
    assert web.backend.settings.secrets is not None
    return [
        (each.row.facts.name, each.row.facts.shared, each.value, each.row.facts.binding)
        for each in await web.backend.settings.secrets.vault.opened()
    ]


async def listed(browser: httpx.AsyncClient) -> str:
    return (await browser.get("/secrets")).text


async def test_a_secret_is_stored_and_never_shown(web: Web):
    async with web.sign_in() as browser:
        assert "No secrets" in await listed(browser)
        answer = await browser.post("/secrets", data=FORM)
        page = await listed(browser)

    assert (answer.status_code, answer.text) == (204, "")
    assert await stored(web) == [("WEATHER_KEY", True, VALUE, BOUND)]
    assert VALUE not in page
    for shown in ("WEATHER_KEY", "https://api.example.org:443", "header Authorization", "never sent"):
        assert shown in page
    assert "Keep the recovery key" in page


async def test_it_is_rotated_bound_and_deleted(web: Web):
    async with web.sign_in() as browser:
        await browser.post("/secrets", data=FORM)
        assert (await browser.post("/secrets", data=FORM)).status_code == 409
        rotated = await browser.post("/secrets/rotate", data={"name": "WEATHER_KEY", "value": "another-value"})
        assert rotated.status_code == 204
        assert await stored(web) == [("WEATHER_KEY", True, "another-value", BOUND)]
        bound = {"name": "WEATHER_KEY", "hosts": "c.example.org", "tools": "x", "kind": "field", "place": "token"}
        assert (await browser.post("/secrets/bind", data=bound)).status_code == 204
        [(_, _, value, binding)] = await stored(web)
        assert (value, binding) == ("another-value", Binding.of(["c.example.org"], ["x"], "field:token"))
        own = {**FORM, "own": "true", "value": "owners-value"}
        assert (await browser.post("/secrets", data=own)).status_code == 204
        assert "hidden by your own value" in await listed(browser)
        assert (await browser.post("/secrets/delete", data={"name": "WEATHER_KEY"})).status_code == 204
        assert [name_shared[:2] for name_shared in await stored(web)] == [("WEATHER_KEY", False)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "a b"}, "isn't a valid secret name"),
        ({"value": "  "}, "a secret has"),
        ({"hosts": "*"}, "is not a host"),
        ({"place": "a b"}, "is not a place"),
    ],
)
async def test_what_cannot_be_stored_is_refused_in_a_line(web: Web, change: dict[str, str], said: str):
    async with web.sign_in() as browser:
        answer = await browser.post("/secrets", data=FORM | change)
    assert said in answer.json()["error"]["message"]
    assert await stored(web) == []


async def test_an_unknown_one_is_not_made_by_rotating(web: Web):
    async with web.sign_in() as browser:
        for path in ("rotate", "bind", "delete"):
            answer = await browser.post(f"/secrets/{path}", data={"name": "NONE", "value": "x" * 9})
            assert answer.status_code == 404
    assert await stored(web) == []


async def test_no_token_and_no_other_page_gets_in(web: Web):
    for path in ("/secrets", "/secrets/rotate", "/secrets/bind", "/secrets/delete"):
        assert (await web.client.post(path, data=FORM, headers=BEARER)).status_code == 401
    async with web.sign_in() as browser:
        answer = await browser.post("/secrets", data=FORM, headers={"Origin": "https://evil.example"})
        assert answer.status_code == 403
    assert await stored(web) == []


def form_link(web: Web, name: str = "MAIL_PASSWORD") -> str:
    link = web.backend.access.secret_links.issue(
        "https://claw.example.org", web.backend.owner.id, name, web.backend.clock.now()
    )
    return link.partition("#t=")[2].partition("&")[0]


async def test_a_one_time_form_stores_a_persons_own_value_once(web: Web):
    assert web.backend.settings.secrets is not None
    await web.backend.settings.secrets.vault.put(
        web.backend.owner.id, "MAIL_PASSWORD", "shared-value", shared=True, binding=BOUND
    )
    await web.backend.settings.secrets.look()
    given = {"secret": form_link(web), "value": VALUE}
    first = await web.client.post("/secret", json=given, headers=web.at_page)
    second = await web.client.post("/secret", json={**given, "value": "another-value"}, headers=web.at_page)

    assert (first.status_code, second.status_code) == (204, 401)
    assert ("MAIL_PASSWORD", False, VALUE, BOUND) in await stored(web)
    assert len(await stored(web)) == 2
    assert VALUE not in (await web.client.get("/secret", headers=web.at_page)).text


async def test_a_one_time_form_unlocks_a_members_own_file(web: Web):
    locked = unlockable_pdf("The code is 4711.", b"sesame 9")
    async with web.path.database.connection() as conn:
        member = await principals.ensure_member(conn, "Bob", "fake:2")
        facts = {"size": len(locked), "mime": "application/pdf", "sha256": hashlib.sha256(locked).hexdigest()}
        row = await files.keep(conn, member, "uploads/a.pdf", **facts, label=Label.UNTRUSTED, origin="fake")
        await files.derived(conn, row.id, problem=LOCKED)
    folder = web.path.workspaces.of(member).root / "uploads"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(locked)

    async def typed(password: str) -> httpx.Response:
        link = web.backend.access.secret_links.issue("https://x", member, "uploads/a.pdf", web.backend.clock.now())
        given = {"secret": link.partition("#t=")[2].partition("&")[0], "value": password}
        return await web.client.post("/secret", json=given, headers=web.at_page)

    wrong = await typed("sesame 8")
    assert (wrong.status_code, wrong.json()["error"]["message"]) == (
        409,
        "the password of uploads/a.pdf is wrong; nothing was read. Write /secret uploads/a.pdf for another form.",
    )
    assert (await typed("sesame 9")).status_code == 204
    assert "4711" in (folder / "a.pdf.txt").read_text()
    assert await stored(web) == []


async def test_a_form_without_its_link_or_elsewhere_stores_nothing(web: Web):
    wrong = {"secret": "0" * 64, "value": VALUE}
    assert (await web.client.post("/secret", json=wrong, headers=web.at_page)).status_code == 401
    right = {"secret": form_link(web), "value": VALUE}
    assert (await web.client.post("/secret", json=right)).status_code == 403
    empty = await web.client.post("/secret", json={**right, "value": " "}, headers=web.at_page)
    assert empty.status_code == 409
    assert (await web.client.post("/secret", json=right, headers=web.at_page)).status_code == 204
    assert [name for name, *_ in await stored(web)] == ["MAIL_PASSWORD"]
