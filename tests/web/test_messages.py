"""What can be done with a message of the chat: copy it, try it again, stop its answer."""

from datetime import UTC, datetime

import httpx

from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.model import Attempt, ModelsExhausted, ToolCall
from gateway.domain.conversation.transcript import UserText
from gateway.domain.ids import MessageId
from gateway.domain.principals import Label
from gateway.store.people import principals
from gateway.store.transcript import conversations, messages, sessions
from gateway.store.transcript.messages import MessageRow
from tests.web.conftest import Web
from tests.web.scripted import Wait

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HERE = Address("web", "owner", "main")


async def shown(web: Web) -> list[MessageRow]:
    async with web.path.database.connection() as conn:
        session = await sessions.current(conn, HERE)
        return await conversations.with_costs(conn, await messages.shown(conn, session)) if session else []


async def say(browser: httpx.AsyncClient, **form: object) -> httpx.Response:
    return await browser.post("/chat", data=form)


async def said(web: Web, kind: str, number: int = 1) -> MessageRow:
    """The newest entry of a kind, once there are so many."""
    found: list[MessageRow] = []
    while len(found) < number:
        found = [row for row in await shown(web) if row.kind == kind]
    return found[-1]


async def test_an_answer_has_the_costs_of_its_own_calls(web: Web):
    web.model.says(ToolCall("c1", "list_files", "{}"))
    async with web.sign_in() as browser:
        await say(browser, text="look", client_id="1")
        first = await said(web, "assistant")
        await say(browser, text="again", client_id="2")
        second = await said(web, "assistant", 2)
    assert first.usage is not None
    assert second.usage is not None
    assert (first.models, first.usage.input_tokens, first.usage.output_tokens) == (("scripted",), 22, 14)
    assert (second.models, second.usage.input_tokens, second.usage.output_tokens) == (("scripted",), 11, 7)


async def test_a_reply_knows_its_command(web: Web):
    async with web.sign_in() as browser:
        await say(browser, text="hello", client_id="1")
        await said(web, "assistant")
        await say(browser, text="/ping  now", client_id="2")
        assert (await said(web, "notice")).command == "/ping  now"
        await say(browser, text="/new", client_id="3")
        assert (await said(web, "notice")).command == "/new"


async def test_what_was_said_until_a_stop_is_kept(web: Web):
    writing = Wait()
    web.model.says("I will count: one, two", writing)
    async with web.sign_in() as browser:
        await say(browser, text="count", client_id="1")
        await writing.reached.wait()
        await say(browser, text="/stop", client_id="2")
        await said(web, "notice")
        asked, kept, stopped = await shown(web)
        assert (asked.stopped, kept.text, kept.final, stopped.text) == (
            True,
            "I will count: one, two",
            False,
            "Stopped.",
        )
        await say(browser, text="go on", client_id="3")
        await said(web, "assistant", 2)
    assert "I will count: one, two" in str(web.model.prompts[-1])


async def test_nothing_is_kept_of_an_answer_that_had_no_words_yet(web: Web):
    writing = Wait()
    web.model.says(writing)
    async with web.sign_in() as browser:
        await say(browser, text="count", client_id="1")
        await writing.reached.wait()
        await say(browser, text="/stop", client_id="2")
        await said(web, "notice")
        assert [row.kind for row in await shown(web)] == ["user", "notice"]


async def test_a_message_can_be_tried_again_with_its_files(web: Web):
    web.model.says(ModelsExhausted("No model", (Attempt("scripted", "overloaded", "busy"),)))
    async with web.sign_in() as browser:
        kept = (await browser.post("/chat/files", files={"file": ("a.txt", b"words", "text/plain")})).json()
        await say(browser, text="read", client_id="1", files=kept["id"])
        failure = await said(web, "notice")
        [asked] = [row for row in await shown(web) if row.answered_by == failure.id]
        for _ in range(2):
            assert (await say(browser, again=asked.id, client_id="2")).status_code == 202
        await said(web, "assistant")
        again = [row for row in await shown(web) if row.kind == "user"]
    assert [row.text for row in again] == ["read", "read"]
    assert "words" in str(web.model.prompts[-1])


async def test_nobody_elses_words_are_said_again_or_copied(web: Web):
    async with web.path.database.transaction() as tx:
        other = await principals.ensure_member(tx, "Bo", "telegram:7")
        session = await sessions.start(tx, other, Label.UNTRUSTED)
        theirs = await messages.say(tx, session, other, UserText("secret", NOW), label=Label.UNTRUSTED)
    async with web.sign_in() as browser:
        await say(browser, text="mine", client_id="1")
        mine = await said(web, "user")
        answer = await said(web, "assistant")
        assert (await browser.get(f"/chat/messages/{mine.id}/text")).text == "mine"
        assert (await browser.get(f"/chat/messages/{theirs.id}/text")).status_code == 404
        assert (await browser.get("/chat/messages/999999/text")).status_code == 404
        assert (await say(browser, again=theirs.id, client_id="2")).status_code == 404
        assert (await say(browser, again=answer.id, client_id="3")).status_code == 403
        for forwarded in (
            "update messages set label = 2 where id = $1",
            "update inbox set sender = '' where message_id = $1",
        ):
            await web.path.database.run(lambda tx, done=forwarded: tx.execute(done, mine.id))
            assert (await say(browser, again=mine.id, client_id="4")).status_code == 403
            await web.path.database.run(lambda tx: tx.execute("update messages set label = 0 where id = $1", mine.id))
    assert (await web.client.get(f"/chat/messages/{MessageId(1)}/text", headers=web.at_page)).status_code == 401
