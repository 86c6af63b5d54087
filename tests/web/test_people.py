import re
from datetime import UTC, datetime

from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.store.people import accounts, pairings, tokens
from tests.web.conftest import BEARER, Web


async def ask(web: Web, name: str, code: str, sender: str = "7") -> None:
    """A stranger writes on a channel that takes requests."""
    at = Address("telegram", "bot", sender)
    inbound = Inbound(at, Sender(sender, name), "hi", f"m{sender}", datetime.now(UTC), private=True, as_owner=True)
    assert await web.path.database.run(lambda tx: pairings.request(tx, inbound, code)) is not None


async def test_a_code_that_opens_nothing_says_so(web: Web):
    async with web.sign_in() as browser:
        for what in ("approve", "deny"):
            answer = await browser.post(f"/people/ABCDEFGH/{what}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "owner_must_act")
            assert "mistyped" in answer.json()["error"]["message"]


async def test_only_who_is_signed_in_decides(web: Web):
    await ask(web, "Bo", "ABCDEFGH")
    answer = await web.client.post("/people/ABCDEFGH/approve", headers={**BEARER, "Origin": web.url})
    assert answer.status_code == 401
    assert await web.backend.channels.pairing.admitted() == []


async def test_the_page_shows_who_asks_and_takes_the_owners_word(web: Web):
    await ask(web, '<b>Bo</b>\u202e"', "ABCDEFGH")
    async with web.sign_in() as browser:
        shown = (await browser.get("/people")).text
        assert "&lt;b&gt;Bo&lt;/b&gt; &#34;" in shown
        assert "ABCDEFGH" in shown
        assert (await browser.post("/people/ABCDEFGH/approve")).status_code == 204
        [admitted] = await web.backend.channels.pairing.admitted()
        assert "Revoke" in (await browser.get("/people")).text
        assert (await browser.post(f"/people/{admitted.id}/deny")).status_code == 204
        assert "choose <b>pairing</b> under Who may talk" in (await browser.get("/people")).text


async def test_a_foreign_page_lets_nobody_in(web: Web):
    await ask(web, "Bo", "ABCDEFGH")
    async with web.sign_in() as browser:
        answer = await browser.post("/people/ABCDEFGH/approve", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403
    assert await web.backend.channels.pairing.admitted() == []


async def test_whoever_is_not_signed_in_is_sent_to_the_sign_in(web: Web):
    for path in ("/people", "/channels"):
        answer = await web.client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")


async def claim(web: Web, code: str = "ABCDEFGH") -> None:
    """The owner makes a code, and an unknown account gives it."""
    owner = web.backend.owner.id
    await web.path.tell("hello")
    await web.path.rows(
        "insert into links (code, principal_id, address_id) select $1, $2, id from addresses", code, owner
    )
    inbound = Inbound(
        Address("slack", "team", "D1"),
        Sender("U/1", "<b>Bo</b>"),
        "",
        "m1",
        datetime.now(UTC),
        private=True,
        as_owner=True,
    )
    await web.path.database.run(lambda tx: accounts.claim(tx, inbound, code))


async def test_the_page_joins_an_account_and_parts_it(web: Web):
    await claim(web)
    async with web.sign_in() as browser:
        shown = (await browser.get("/people")).text
        assert "&lt;b&gt;Bo&lt;/b&gt;" in shown
        assert "/people/joins/ABCDEFGH?join=true" in shown
        assert "Accounts of Ada" in shown
        assert (await browser.post("/people/joins/ABCDEFGH?join=true")).status_code == 204
        assert await web.path.rows("select identities from principals") == [(["fake:1", "slack:U/1"],)]
        [url] = re.findall(r'action="(/people/accounts/part.identity=slack[^"]*)"', (await browser.get("/people")).text)
        assert (await browser.post(url)).status_code == 204
        assert await web.path.rows("select identities from principals where role = 'owner'") == [(["fake:1"],)]
        assert (await browser.post(url)).status_code == 409


async def test_the_page_says_no_to_an_account(web: Web):
    await claim(web)
    async with web.sign_in() as browser:
        assert (await browser.post("/people/joins/ABCDEFGH?join=false")).status_code == 204
        assert (await browser.post("/people/joins/ABCDEFGH?join=true")).status_code == 409
    assert await web.path.rows("select identities from principals") == [(["fake:1"],)]


async def test_no_token_joins_or_parts_an_account(web: Web):
    await claim(web)
    for url in ("/people/joins/ABCDEFGH?join=true", "/people/accounts/part?identity=fake:1"):
        assert (await web.client.post(url, headers={**BEARER, "Origin": web.url})).status_code == 401
    assert await web.path.rows("select identities from principals") == [(["fake:1"],)]


async def test_the_page_names_the_programs_that_speak_as_the_owner(web: Web):
    owner = web.backend.owner.id
    await tokens.create(web.backend.database, owner, "editor", ["chat"], as_owner=True)
    await tokens.create(web.backend.database, owner, "script", ["chat"])
    async with web.sign_in() as browser:
        shown = (await browser.get("/people")).text
    assert ("editor" in shown, "script<" in shown) == (True, False)
