import re

import pytest

from gateway.domain.people.credentials import Scope
from gateway.store.people import tokens
from tests.web.conftest import BEARER, Web

FORM = {"name": "editor", "scope": ["chat", "memory"]}


async def held(web: Web) -> list[tuple[object, ...]]:
    return [
        (row.name, row.scopes, row.as_owner, row.agent, row.shared)
        for row in await tokens.list_all(web.backend.database)
    ]


async def test_a_token_is_made_and_shown_once(web: Web):
    async with web.sign_in() as browser:
        answer = await browser.post("/tokens", data={**FORM, "agent": " crawler ", "shared": "true"})
        [plain] = re.findall(r"claw_[\w-]{43}", answer.text)
        listed = (await browser.get("/tokens")).text
    assert answer.headers["cache-control"] == "no-store"
    assert await held(web) == [("editor", (Scope.CHAT, Scope.MEMORY), False, "crawler", True)]
    assert await tokens.find(web.backend.database, plain) is not None
    assert plain not in listed
    assert "editor" in listed


async def test_one_that_speaks_as_the_owner_is_made_after_the_warning(web: Web):
    async with web.sign_in() as browser:
        asked = await browser.post("/tokens", data={**FORM, "as_owner": "true"})
        assert "Anyone who has this token will be treated as you" in asked.text
        assert await held(web) == []
        fields = dict(re.findall(r'name="(name|as_owner|confirmed)" value="([^"]*)"', asked.text))
        scopes = re.findall(r'name="scope" value="(\w+)"', asked.text)
        made = await browser.post("/tokens", data={**fields, "scope": scopes})
        assert "claw_" in made.text
        assert "speaks as you" in (await browser.get("/tokens")).text
    assert await held(web) == [("editor", (Scope.CHAT, Scope.MEMORY), True, "editor", False)]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"name": "x"}, "Choose what the token may do."),
        ({"name": " ", "scope": "chat"}, "Give the token a name."),
        ({"name": "x", "scope": "everything"}, "scope"),
        ({"name": "x", "scope": "read", "as_owner": "true"}, "add chat"),
        ({"name": "x", "scope": "chat", "shared": "true"}, "the scope memory"),
        ({"name": "x", "scope": "chat", "agent": "y"}, "the scope memory"),
    ],
)
async def test_what_does_not_go_together_is_refused(web: Web, form: dict[str, str], said: str):
    async with web.sign_in() as browser:
        answer = await browser.post("/tokens", data=form)
    assert (answer.status_code, said in answer.json()["error"]["message"]) == (400, True)
    assert await held(web) == []


async def test_a_token_for_files_may_have_a_folder(web: Web):
    form = {"name": "trips", "scope": "files"}
    async with web.sign_in() as browser:
        for wrong in ({**form, "folder": "../x"}, {**form, "folder": "trips", "scope": "chat"}):
            assert (await browser.post("/tokens", data=wrong)).status_code == 409
        assert (await browser.post("/tokens", data={**form, "folder": " trips/./2026 "})).status_code == 200
    [row] = await tokens.list_all(web.backend.database)
    assert row.scopes == ("files:trips/2026",)


async def test_a_taken_name_is_refused(web: Web):
    async with web.sign_in() as browser:
        await browser.post("/tokens", data=FORM)
        answer = await browser.post("/tokens", data=FORM)
    assert (answer.status_code, "already exists" in answer.json()["error"]["message"]) == (409, True)


async def test_a_token_is_revoked(web: Web):
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "a/b & c", ["read"])
    headers = {"Authorization": f"Bearer {plain}"}
    async with web.sign_in() as browser:
        assert (await browser.post("/tokens/revoke", data={"name": "a/b & c"})).status_code == 204
        assert (await browser.post("/tokens/revoke", data={"name": "a/b & c"})).status_code == 404
    assert (await web.client.get("/api/status", headers=headers)).status_code == 401


async def test_no_token_makes_or_revokes_one(web: Web):
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "admin", ["admin"], as_owner=True)
    for bearer in (BEARER, {"Authorization": f"Bearer {plain}"}):
        for path, form in (("/tokens", FORM), ("/tokens/revoke", {"name": "admin"})):
            for headers in (bearer, {**bearer, **web.at_page}):
                answer = await web.client.post(path, data=form, headers=headers)
                assert answer.status_code in {401, 403}, path
    assert [name for name, *_ in await held(web)] == ["admin"]


async def test_no_foreign_page_makes_one(web: Web):
    async with web.sign_in() as browser:
        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert (await browser.post("/tokens", data=FORM, headers=headers)).status_code == 403
    assert await held(web) == []


async def test_names_are_shown_as_text(web: Web):
    await tokens.create(web.backend.database, web.backend.owner.id, "<b>x</b>\u202e", ["read"])
    async with web.sign_in() as browser:
        shown = (await browser.get("/tokens")).text
    assert "&lt;b&gt;x&lt;/b&gt;" in shown
    assert "<b>x</b>" not in shown
