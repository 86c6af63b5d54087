"""What the agent says of its own accord reaches the person it works for, and nobody else."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.channels.channel import Capabilities
from gateway.domain.conversation.inbound import Address
from gateway.domain.principals import Label
from gateway.flow.live import MessageStored
from gateway.store.connection.pool import Database
from gateway.store.transcript import sessions
from tests.fakes.channel import FakeChannel
from tests.flow.path import (
    MEMBER,
    FakeModel,
    MessagePath,
    build,
    call,
    crash,
    in_turn,
    message,
    restarted,
    results,
    said,
)

WEB, API = Address("web", "owner", "main"), Address("api", "owner", "x")
FILES = Capabilities(max_text=4096, max_file=1000)


@pytest.fixture
async def path(database: Database, workspace: Path) -> MessagePath:
    return await build(database, workspace, FakeModel(), channel=FakeChannel(capabilities=FILES))


async def ask(path: MessagePath, text: str, at: Address | None = None, **more: Any) -> str:
    inbound = message(text, **more)
    [accepted] = await path.inbound.accept([replace(inbound, address=at) if at else inbound])
    return (await path.answer(accepted)).text


async def does(path: MessagePath, name: str, at: Address | None = None, /, **arguments: Any) -> dict[str, Any]:
    """What the tool answers when the agent, asked there, calls it."""
    path.model.answer = in_turn(said("", call(name, **arguments)), said("done"))
    await ask(path, "do it", at)
    path.model.answer = FakeModel().answer
    return results(path.model.prompts[-1])[-1]


async def test_a_message_reaches_the_chat_where_they_wrote_last(path: MessagePath) -> None:
    async with path.working():
        answer = await does(path, "send_message", text="**ping**")
        assert await path.channel.until(lambda texts: len(texts) == 2) == ["**ping**", "done"]
    [(id, address)] = await path.rows("select id, address_id from messages where text = '**ping**'")
    assert answer == {"ok": True, "to": "fake", "message_id": id}
    assert await path.rows("select distinct address_id from outbox") == [(address,)]


async def test_a_message_from_the_web_goes_to_the_messenger_that_was_named(path: MessagePath) -> None:
    async with path.working():
        await ask(path, "hello")
        await path.channel.until(bool)
        assert (await does(path, "send_message", WEB, text="ping", to=" Fake "))["to"] == "fake"
        assert await path.channel.until(lambda texts: len(texts) == 2) == ["re: hello", "ping"]
    [(ping,), (hello,)] = await path.rows(
        "select session_id from messages where text in ('ping', 'hello') order by text desc"
    )
    assert ping == hello


async def test_and_the_other_way_round_it_is_a_line_of_the_transcript(path: MessagePath) -> None:
    async with path.working():
        await ask(path, "hello", WEB)
        async with path.database.connection() as conn:
            page = await sessions.current(conn, WEB)
        assert page is not None
        with path.live.subscribe(page) as events:
            answer = await does(path, "send_message", text="ping", to="web")
            assert events.ready() == [MessageStored(answer["message_id"])]
        await path.channel.until(bool)
        await path.outbound.drain(5)
    assert path.channel.texts == ["done"]
    assert await path.rows("select kind, final, origin from messages where text = 'ping'") == [
        ("assistant", False, "agent")
    ]


async def test_the_agent_remembers_what_it_sent(path: MessagePath) -> None:
    async with path.working():
        await ask(path, "hello")
        await does(path, "send_message", WEB, text="ping", to="fake")
        await ask(path, "what did you say?")
    assert "re: hello\n\nping" in [getattr(said, "text", "") for said in path.model.prompts[-1].messages]


async def test_a_chat_that_does_not_exist_is_explained(path: MessagePath) -> None:
    async with path.working():
        assert await does(path, "send_message", text="ping", to="slack") == {
            "error": "no_such_chat",
            "message": "Nobody has written on slack yet. Channels with a chat: fake.",
        }
        await ask(path, "hello", API)
        unknown = await does(path, "send_message", text="ping", to="api")
    assert unknown["message"] == "Nobody has written on api yet. Channels with a chat: fake."


async def test_where_there_is_only_the_api_there_is_no_chat(path: MessagePath) -> None:
    async with path.working():
        answer = await does(path, "send_message", API, text="ping")
    assert answer == {"error": "no_such_chat", "message": "There is no chat anywhere yet."}


async def test_a_member_reaches_neither_the_owner_nor_anybody_else(path: MessagePath) -> None:
    async with path.working():
        await ask(path, "hello", WEB)
        await ask(path, "hello")
        path.model.answer = in_turn(
            said("", call("send_message", text="ping"), call("send_message", text="ping", to="web")), said("done")
        )
        await ask(path, "ping them", sender=MEMBER, chat=MEMBER)
        await path.channel.until(lambda texts: len(texts) == 3)
    mine, theirs = results(path.model.prompts[-1])
    assert (mine["ok"], theirs["error"]) == (True, "no_such_chat")
    assert {m.address.chat for m in path.channel.shown if m.text in {"ping", "done"}} == {MEMBER}
    assert (await path.rows("select count(*) from messages where text = 'ping'")) == [(1,)]


async def test_what_a_stained_turn_sends_stains_where_it_goes(path: MessagePath) -> None:
    async with path.working():
        await ask(path, "hello")
        await ask(path, "hello", WEB)
        async with path.database.connection() as conn:
            page = await sessions.current(conn, WEB)
            assert page is not None
            await sessions.taint(conn, page, Label.UNTRUSTED)
        await does(path, "send_message", WEB, text="ping", to="fake")
    rows = await path.rows(
        "select m.label, s.label from messages m join sessions s on s.id = m.session_id where m.text = 'ping'"
    )
    assert rows == [(Label.UNTRUSTED, Label.UNTRUSTED)]


async def test_a_turn_killed_while_it_said_it_does_not_say_it_twice(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = asyncio.Event()
    path.model.answer = in_turn(said("", call("send_message", text="ping")))
    await path.tell("go")
    monkeypatch.setattr(path.signals.outbox, "set", stored.set)
    run = asyncio.create_task(path.turns.run(await path.claim()))
    await stored.wait()
    await crash(run)
    again = await restarted(path, FakeModel(answer=lambda _: said("done")))
    await again.turns.run(await again.claim())
    assert await path.rows("select text from outbox order by id") == [("ping",), ("done",)]
    assert results(again.model.prompts[0])[0]["error"] == "may_have_run"


class TestFiles:
    async def test_a_file_is_sent_recorded_and_part_of_the_transcript(self, path: MessagePath) -> None:
        (path.workspace / "notes").mkdir()
        (path.workspace / "notes/plan.md").write_text("the plan")
        async with path.working():
            answer = await does(path, "send_file", path="notes/plan.md", caption="Here.")
            await path.channel.until(lambda texts: len(texts) == 2)
        assert answer["ok"] is True
        assert path.channel.texts == ["Here.", "done"]
        assert path.channel.taken == [b"the plan"]
        assert await path.rows("select path, mime, size, origin from files") == [
            ("notes/plan.md", "text/markdown", 8, "agent")
        ]
        assert await path.rows("select message_id, state, channel from attachments") == [
            (answer["message_id"], "stored", "fake")
        ]

    async def test_without_words_the_transcript_names_it(self, path: MessagePath) -> None:
        (path.workspace / "plan.md").write_text("the plan")
        async with path.working():
            answer = await does(path, "send_file", WEB, path="plan.md", to="web")
        assert await path.rows("select text from messages where id = $1", answer["message_id"]) == [("[plan.md]",)]
        assert await path.rows("select count(*) from attachments") == [(1,)]
        assert path.channel.shown == []

    async def test_what_is_known_of_a_file_stays_known(self, path: MessagePath) -> None:
        (path.workspace / "plan.md").write_text("the plan")
        async with path.working():
            await does(path, "send_file", path="plan.md")
            await path.rows("update files set mime = 'text/x-plan', origin = 'fake' returning id")
            await does(path, "send_file", path="plan.md")
            assert await path.rows("select mime, origin from files") == [("text/x-plan", "fake")]
            await path.channel.until(lambda texts: len(texts) == 4)
            (path.workspace / "plan.md").write_text("another plan")
            await does(path, "send_file", path="plan.md")
            await path.channel.until(lambda texts: len(texts) == 6)
        assert path.channel.taken == [b"the plan", b"the plan", b"another plan"]

    @pytest.mark.parametrize(
        ("file", "error", "words"),
        [
            ("missing.md", "not_found", "does not exist"),
            ("../secret", "bad_path", "not allowed"),
            ("big.bin", "too_large", "the limit is 0.001 MB"),
            ("empty", "empty", "messengers refuse empty files"),
            ("folder", "not_a_file", "is a folder"),
        ],
    )
    async def test_what_cannot_be_sent_is_explained(self, path: MessagePath, file: str, error: str, words: str) -> None:
        (path.workspace / "big.bin").write_bytes(bytes(1001))
        (path.workspace / "empty").touch()
        (path.workspace / "folder").mkdir()
        async with path.working():
            answer = await does(path, "send_file", path=file)
        assert answer["error"] == error
        assert words in answer["message"]
        assert await path.rows("select text from outbox") == [("done",)]

    async def test_a_messenger_without_files_is_named(self, database: Database, path: MessagePath) -> None:
        path = await build(database, path.workspace, FakeModel())
        (path.workspace / "plan.md").write_text("the plan")
        async with path.working():
            answer = await does(path, "send_file", path="plan.md")
        assert answer["error"] == "no_files"
