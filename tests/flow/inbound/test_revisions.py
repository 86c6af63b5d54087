"""Edits and deletions of what a turn has read: told to the next one, nobody's words any more, and out of memory."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.domain.channels.channel import Capabilities
from gateway.domain.conversation.inbound import Attachment
from gateway.domain.principals import Label
from gateway.flow import approvals
from gateway.flow.inbound.persistence import NO_COMMAND
from gateway.flow.live import MessageStored
from gateway.store.connection.pool import Database
from gateway.store.memory import indexing
from gateway.store.transcript import conversations, journals, messages
from tests.fakes.channel import FakeChannel
from tests.flow.path import FakeModel, MessagePath, build, call, in_turn, message, said

DELETED: dict[str, Any] = {"deleted": True}


def prompt(path: MessagePath) -> str:
    return "\n".join(part.text for part in path.model.prompts[-1].messages)


async def answered(path: MessagePath, text: str = "meet at 5", id: str = "m1") -> None:
    path.model.answer = lambda _: said("noted")
    await path.ask(text, id=id)


@pytest.mark.parametrize(("change", "told"), [({}, "nothing else.]\nmeet at 6"), (DELETED, "it counts no more.]")])
@pytest.mark.parametrize("between", [None, "/new"])
async def test_the_next_turn_is_told(path: MessagePath, change: dict[str, Any], told: str, between: str | None) -> None:
    async with path.working():
        await answered(path)
        if between:
            await path.ask(between)
        changed = await path.tell("" if change else "meet at 6", edits="m1", id="e1", **change)
        assert (await path.answer(changed)).text == ""
        await path.ask("when do we meet?")
    assert len(path.model.prompts) == 2
    assert told in prompt(path)
    assert "meet at 5" not in prompt(path)
    stored = await path.rows("select text, withdrawn from messages where text = 'meet at 5'")
    assert stored == [("meet at 5", "deleted" if change else "edited")]
    [(session,)] = await path.rows("select session_id from messages where text = 'meet at 5'")
    async with path.database.connection() as conn:
        shown = [
            await conversations.listed(conn, path.people.owner.id, 10),
            await journals.outline(conn, session),
        ]
    assert "meet at 5" not in str(shown)


CAT, DOG = (Attachment(name, f"{name}.txt", "text/plain") for name in ("cat", "dog"))


@pytest.mark.parametrize(
    ("id", "text", "change", "told"),
    [
        ("p2", "", DELETED, " UTC, in part; it counts no more.]"),
        ("p2", "the dog is ill", {"attachments": (DOG,)}, "in one of its parts.]\nthe dog is ill"),
        (
            "p1",
            "my pets",
            {"attachments": (replace(CAT, name="cow.txt"),)},
            "[Its file is now cow.txt, which isn't read",
        ),
        ("p1", "my pets", {"attachments": (replace(CAT, size=9),)}, "[Its file is now cat.txt, which isn't read"),
    ],
)
async def test_changes_of_an_album_and_of_its_files_are_told(
    path: MessagePath, id: str, text: str, change: dict[str, Any], told: str
) -> None:
    path.channel.files |= {"cat": b"a cat", "dog": b"a dog"}
    parts = [("p1", "my pets", CAT), ("p2", "", DOG)]
    async with path.working():
        said = [message(text, id=id, album="a", attachments=(file,)) for id, text, file in parts]
        await path.inbound.accept(said)
        await path.channel.until(bool)
        changed = await path.tell(text, edits=id, id="e1", **change)
        assert (await path.answer(changed)).text == ""
        await path.ask("how are they?")
    assert told in prompt(path)


@pytest.mark.parametrize("change", [{}, DELETED])
async def test_a_page_that_shows_it_is_told_at_once(path: MessagePath, change: dict[str, Any]) -> None:
    async with path.working():
        await answered(path)
    [(session,)] = await path.rows("select distinct session_id from messages")
    with path.live.subscribe(session) as events:
        changed = await path.tell("" if change else "meet at 6", edits="m1", id="e1", **change)
        assert events.ready() == [MessageStored(changed.message_id)]


async def test_it_comes_once_and_the_newest_counts(path: MessagePath) -> None:
    async with path.working():
        await answered(path)
        for text, id in (("meet at 6", "e1"), ("meet at 7", "e2"), ("meet at 6", "e1"), ("meet at 7", "e3")):
            await path.tell(text, edits="m1", id=id)
        await path.ask("when?")
        await path.tell("meet at 8", edits="m1", id="e4")
        await path.ask("when now?")
    assert [time for time in "5678" if f"meet at {time}" in prompt(path)] == ["8"]
    assert prompt(path).count("now says this") == 1


async def test_one_that_a_running_turn_has_read_is_told_anew_to_the_next(path: MessagePath) -> None:
    async with path.working():
        await answered(path)
        await path.tell("meet at 6", edits="m1", id="e1")
        path.model.gate, path.model.called = asyncio.Event(), asyncio.Event()
        asked = await path.tell("when?")
        await path.model.called.wait()
        await path.tell("meet at 7", edits="m1", id="e2")
        path.model.gate.set()
        await path.answer(asked)
        await path.ask("when now?")
    assert "meet at 6" not in prompt(path)
    assert prompt(path).index("when?") < prompt(path).index("meet at 7")


async def test_an_edit_is_never_a_command_and_one_of_a_command_says_so(path: MessagePath) -> None:
    async with path.working():
        await answered(path)
        await path.tell("/new", edits="m1", id="e1")
        assert await path.rows("select count(*) from sessions where ended_at is not null") == [(0,)]
        await path.ask("/ping", id="c1")
        await path.tell("/new", edits="c1", id="e2")
        await path.channel.until(lambda texts: NO_COMMAND in texts)
    assert await path.rows("select count(*) from sessions where ended_at is not null") == [(0,)]


async def test_an_edit_of_what_is_being_answered_joins_the_turn(path: MessagePath) -> None:
    path.model.gate = asyncio.Event()
    async with path.working():
        await path.tell("meet at 5", id="m1")
        await path.model.called.wait()
        await path.tell("meet at 6", edits="m1", id="e1")
        path.model.gate.set()
        await path.channel.until(bool)
    assert "meet at 6" in prompt(path)
    assert len(path.channel.texts) == 1


async def test_what_is_deleted_before_a_turn_reads_it_starts_none(path: MessagePath) -> None:
    await path.tell("meet at 5", id="m1")
    await path.tell("", edits="m1", id="d1", **DELETED)
    async with path.working():
        await path.ask("hello")
    assert path.model.answered == ["hello"]


async def test_replaced_words_are_nobodys_and_leave_memory(path: MessagePath) -> None:
    async with path.working():
        await answered(path, "write to bob@bob.example")
    async with path.database.transaction() as tx:
        await indexing.index_turns(tx, None, 100)
    turns = "select count(*) from memories where kind = 'turn'"
    assert await path.rows(turns) == [(2,)]
    edit = await path.tell("write to ben@ben.example", edits="m1", id="e1")
    assert await path.rows(turns) == [(1,)]
    async with path.database.transaction() as tx:
        await indexing.index_turns(tx, None, 100)
        assert edit.session_id is not None
        own = await messages.said_by_person(tx, edit.session_id, Label.OWNER)
    assert "ben@ben.example" in "".join(own)
    assert "bob@bob.example" not in "".join(own)
    found = await path.rows("select text from remembered where kind = 'turn' and role = 'user'")
    assert len(found) == 1
    assert "ben@ben.example" in found[0][0]


class TestQuestions:
    @pytest.fixture
    async def path(
        self, database: Database, workspace: Any, model: FakeModel, monkeypatch: pytest.MonkeyPatch
    ) -> MessagePath:
        monkeypatch.setattr(approvals, "TOGETHER_SECONDS", 0)
        able = FakeChannel(capabilities=Capabilities(max_text=4096, buttons=True))
        return await build(database, workspace, model, channel=able)

    @pytest.mark.parametrize(
        ("changed", "change", "state"),
        [("m1", {}, "closed"), ("m1", DELETED, "closed"), ("m0", {}, "open"), ("m2", {}, "open")],
    )
    async def test_the_one_that_the_message_led_to_is_closed(
        self, path: MessagePath, changed: str, change: dict[str, Any], state: str
    ) -> None:
        async with path.working():
            await answered(path, "hello", id="m0")
            await path.rows("update sessions set label = 2 returning id")
            write = call("write_file", path="SOUL.md", content="Be evil.")
            path.model.answer = in_turn(said("", write), said("asked"))
            await path.ask("change yourself", id="m1")
            await answered(path, "thanks", id="m2")
            await path.tell("" if change else "never mind", edits=changed, id="e1", **change)
            assert await path.rows("select state from reviews") == [(state,)]
            if state == "closed":
                await path.channel.until(lambda texts: any("Closed: A1" in text for text in texts))
                assert "was closed" in await path.ask("/approve A1")


@pytest.mark.parametrize(
    ("more", "turns"),
    [
        ({"private": False, "addressed": True}, 1),
        ({"private": False, "addressed": False}, 0),
        ({"private": False, "addressed": True, "deleted": True}, 0),
        ({"private": True, "addressed": True}, 0),
    ],
)
async def test_an_edit_that_first_addresses_the_agent_in_a_group_is_answered_once(
    path: MessagePath, more: dict[str, Any], turns: int
) -> None:
    path.model.answer = lambda _: said("at six")
    await path.tell("when is dinner?", chat="g", id="d1", private=False, addressed=False)
    async with path.working():
        first = await path.tell("when is dinner, bot?", chat="g", id="d1:e1", edits="d1", **more)
        await path.tell("/new", chat="g", id="d2:e1", edits="d2", private=False)
        if turns:
            assert (await path.answer(first)).text == "at six"
            await path.tell("when is lunch, bot?", chat="g", id="d1:e2", edits="d1", private=False)
    assert len(path.model.prompts) == turns
    edited = await path.rows("select text from messages where withdrawn = 'edited'")
    assert edited == [("when is dinner, bot?",)] * turns
