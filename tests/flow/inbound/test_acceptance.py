"""What becomes of what arrives."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cachetools import LRUCache

from gateway.agent.memory.search import MemoryQuery, MemorySearch, SearchMode
from gateway.domain.channels.routing import Edit, Ignore, RunCommand, StartTurn
from gateway.domain.conversation.inbound import Address, Earlier
from gateway.domain.ids import InstanceId
from gateway.domain.principals import Label
from gateway.domain.text.texts import own_part
from gateway.flow.inbound.acceptance import CHATS_AT_ONCE
from gateway.store.connection.pool import URGENT_CONNECTIONS, Connection
from gateway.store.transcript import unread
from gateway.store.transcript.unread import PlainMessage, Stored
from tests.flow.path import MEMBER, OWNER, STRANGER, FakeModel, MessagePath, build, message, restarted

COUNTS = """select (select count(*) from inbox), (select count(*) from messages), (select count(*) from tasks),
                   (select count(*) from sessions), (select count(*) from addresses)"""
NOTHING = [(0, 0, 0, 0, 0)]
ONE = [(1, 1, 1, 1, 1)]


async def test_a_message_is_stored_with_a_task_that_answers_it(path: MessagePath) -> None:
    accepted = await path.tell("hello")
    assert accepted.decision == StartTurn()
    assert await path.rows(COUNTS) == ONE
    [(seq, text, session, kind, handled)] = await path.rows(
        """select m.seq, m.text, m.session_id, i.kind, i.handled_at is not null
           from messages m join inbox i on i.message_id = m.id"""
    )
    assert (seq, text, session, kind, handled) == (None, "hello", accepted.session_id, "message", True)


def overheard(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts that each statement stores from now on."""
    statements: list[list[str]] = []
    accept = unread.accept

    async def heard(conn: Connection, said: Sequence[PlainMessage], instance: InstanceId) -> list[Stored | None]:
        statements.append([each.text for each in said])
        return await accept(conn, said, instance)

    monkeypatch.setattr(unread, "accept", heard)
    return statements


class TestDuplicates:
    async def test_fifty_at_once_are_one(self, path: MessagePath) -> None:
        twins = [message("hello", id="m-twin")] * 50
        accepted = await asyncio.gather(*(path.inbound.accept([twin]) for twin in twins))
        assert await path.rows(COUNTS) == ONE
        assert sum(not a.duplicate for [a] in accepted) == 1
        assert len({(a.inbox_id, a.message_id, a.session_id) for [a] in accepted}) == 1

    async def test_one_that_comes_again_after_a_restart_is_known(self, path: MessagePath) -> None:
        first = await path.tell("hello", id="m-again")
        again = await (await restarted(path)).tell("hello", id="m-again")
        assert await path.rows(COUNTS) == ONE
        assert again == replace(first, duplicate=True)

    async def test_a_command_takes_effect_once(self, path: MessagePath) -> None:
        await path.tell("hello")
        first = await path.tell("/new", id="m-new")
        for each in (path, await restarted(path)):
            again = await each.tell("/new", id="m-new")
            assert (again.duplicate, again.inbox_id) == (True, first.inbox_id)
        assert await path.rows("select count(*) from sessions") == [(2,)]

    async def test_memory_is_bounded_and_only_a_shortcut(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(path.inbound, "_seen", LRUCache(2))
        for _ in range(2):
            await path.inbound.accept([message("hello", id=f"n{n}") for n in range(5)])
        assert await path.rows("select count(*) from messages") == [(5,)]

    async def test_the_same_number_in_another_chat_is_another_message(self, path: MessagePath) -> None:
        await path.say("hello", id="m-same")
        await path.say("hello", id="m-same", chat=MEMBER, sender=MEMBER)
        assert await path.rows("select count(*) from messages") == [(2,)]


class TestIgnored:
    @pytest.mark.parametrize(
        ("text", "more"),
        [
            ("hello", {"sender": STRANGER}),
            ("/new", {"sender": STRANGER}),
            ("/nonsense", {}),
            ("   ", {}),
            ("hello all", {"private": False, "addressed": False}),
        ],
    )
    async def test_nothing_of_it_is_stored(self, path: MessagePath, text: str, more: dict[str, object]) -> None:
        accepted = await path.tell(text, **more)
        assert isinstance(accepted.decision, Ignore)
        assert accepted.inbox_id is None
        assert await path.rows(COUNTS) == NOTHING
        assert await path.ask(text, **more) == ""

    async def test_bots_start_no_turns_whoever_they_are(self, path: MessagePath) -> None:
        spoken = message("hello")
        await path.inbound.accept([replace(spoken, sender=replace(spoken.sender, is_bot=True))])
        assert await path.rows(COUNTS) == NOTHING

    async def test_what_is_ignored_does_not_hold_up_the_batch(self, path: MessagePath) -> None:
        accepted = await path.inbound.accept([message("/nonsense"), message("x", sender=STRANGER), message("hello")])
        assert [type(a.decision) for a in accepted] == [Ignore, Ignore, StartTurn]
        assert await path.rows("select text from messages") == [("hello",)]


class TestOrder:
    async def test_a_batch_is_taken_in_the_order_it_came(self, path: MessagePath) -> None:
        accepted = await path.say(*"abcdef")
        async with path.working():
            assert {(await path.answer(a)).text for a in accepted} == {"re: a + b + c + d + e + f"}

    async def test_plain_messages_in_a_row_take_one_statement(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        statements = overheard(monkeypatch)
        texts = ("first", "one", "two", "three", "/new", "four", "five")
        batch = [message(text, id=f"m{place}") for place, text in enumerate(texts)]
        edit = message("four!", id="m8", edits="m5")
        await path.inbound.accept(batch[:1])
        accepted = await path.inbound.accept([*batch[1:4], batch[2], *batch[4:], edit, message("six", id="m9")])
        assert statements == [["one", "two", "three", "two"], ["two"], ["four", "five"], ["six"]]
        assert [each.duplicate for each in accepted[:4]] == [False, False, False, True]
        assert accepted[1].message_id == accepted[3].message_id
        asked = "select text from messages where kind = 'user' order by id"
        assert [text for (text,) in await path.rows(asked)] == ["first", "one", "two", "three", "four!", "five", "six"]
        assert accepted[0].session_id != accepted[5].session_id

    async def test_the_chats_of_the_owner_begin(self, path: MessagePath, monkeypatch: pytest.MonkeyPatch) -> None:
        await path.say("mine", "theirs", chat="mine")
        statements = overheard(monkeypatch)
        theirs = [message("theirs", chat=f"c{n}", sender=MEMBER) for n in range(2 * CHATS_AT_ONCE)]
        for _ in range(3):  # at first they are new, and then their files
            statements.clear()
            await path.inbound.accept([*theirs, message("mine", chat="mine")])
            theirs = [replace(each, platform_id=f"{each.platform_id}-again") for each in theirs]
        assert statements[0] == ["mine"]
        assert len(statements) == len(theirs) + 1

    async def test_a_command_does_not_wait_for_messages_of_other_chats(self, path: MessagePath) -> None:
        crowd = [message("hello", chat=f"c{number}", id=f"first-{number}") for number in range(20)]
        await path.inbound.accept([*crowd, message("hello", chat="other")])
        async with path.database.transaction() as tx:
            await tx.execute("select from addresses where chat <> 'other' for update")
            again = [replace(said, platform_id=f"second-{number}") for number, said in enumerate(crowd)]
            stored = asyncio.create_task(path.inbound.accept(again))
            waiting: list[object] = []
            while len(waiting) < CHATS_AT_ONCE:
                await asyncio.sleep(0.01)
                waiting = await path.rows("select pid from pg_locks where not granted")
            [stopped] = await asyncio.wait_for(path.inbound.accept([message("/stop", chat="other")]), 5)
            assert isinstance(stopped.decision, RunCommand)
            assert not stored.done()
        await stored

    async def test_a_command_waits_for_no_ordinary_work(self, path: MessagePath) -> None:
        await path.tell("hello")
        async with AsyncExitStack() as crowd:
            for _ in range(path.database._pool.get_max_size() - URGENT_CONNECTIONS):
                await crowd.enter_async_context(path.database.connection())
            waits = asyncio.create_task(path.rows("select 1"))
            assert (await path.tell("/stop")).decision == RunCommand("stop", "")
            assert not waits.done()
        assert await waits == [(1,)]

    async def test_a_place_in_the_transcript_is_given_when_a_turn_takes_it(self, path: MessagePath) -> None:
        await path.say("a", "b")
        assert await path.rows("select seq from messages order by id") == [(None,), (None,)]
        async with path.working():
            await path.channel.until(bool)
        assert await path.rows("select text, seq from messages order by id") == [("a", 1), ("b", 2), ("re: a + b", 3)]

    async def test_a_message_right_behind_new_goes_to_the_new_session(self, path: MessagePath) -> None:
        before, new, after = await path.say("before", "/new", "after")
        assert isinstance(new.decision, RunCommand)
        assert before.session_id != after.session_id
        async with path.working():
            assert (await path.answer(after)).text == "re: after"
        assert path.model.answered == ["after"]


class TestEdits:
    async def test_an_edit_replaces_what_no_turn_has_taken(self, path: MessagePath) -> None:
        first = await path.tell("helo", id="m-edited")
        edit = await path.tell("hello", edits="m-edited")
        assert (edit.decision, edit.message_id) == (Edit("m-edited"), first.message_id)
        async with path.working():
            assert (await path.answer(first)).text == "re: hello"

    async def test_a_later_edit_starts_no_turn_and_the_next_one_has_it_instead(self, path: MessagePath) -> None:
        async with path.working():
            await path.ask("helo", id="m-edited")
            edit = await path.tell("hello", edits="m-edited")
            assert (await path.answer(edit)).text == ""
            assert path.model.answered == ["helo"]
            await path.ask("so?")
        prompt = "\n".join(part.text for part in path.model.prompts[-1].messages)
        assert "helo\n" not in prompt.replace("re: helo", "")
        assert prompt.index("[Edited: the message that was here") < prompt.index("now says this, nothing else.]\nhello")

    async def test_the_last_of_several_edits_counts_even_if_it_comes_twice(self, path: MessagePath) -> None:
        await path.tell("a", id="m-edited")
        for text, id in (("b", "e1"), ("c", "e2"), ("b", "e1")):
            await (await restarted(path)).tell(text, edits="m-edited", id=id)
        assert await path.rows("select text from messages") == [("c",)]

    async def test_an_edit_reaches_only_its_own_chat(self, path: MessagePath) -> None:
        await path.tell("mine", id="m-edited")
        await path.tell("changed", edits="m-edited", chat=MEMBER, sender=MEMBER)
        assert await path.rows("select text from messages") == [("mine",)]


class TestTrust:
    async def labels(self, path: MessagePath) -> list[tuple[int, int]]:
        return await path.rows("select m.label, s.label from messages m join sessions s on s.id = m.session_id")

    async def test_what_the_owner_says_in_private_is_trusted(self, path: MessagePath) -> None:
        await path.tell("hello")
        assert await self.labels(path) == [(Label.OWNER, Label.OWNER)]

    async def test_a_group_is_never_trusted_and_has_data_of_its_own(self, path: MessagePath) -> None:
        await path.tell("hello", private=False, chat="g")
        assert await self.labels(path) == [(Label.UNTRUSTED, Label.UNTRUSTED)]
        assert await path.rows(
            "select p.name, p.identities from messages m join principals p on p.id = m.principal_id"
        ) == [("group g", ["fake:group:g"])]
        assert await path.rows("select sender from messages") == [("Ada",)]

    async def test_a_member_is_known_and_somebody_else(self, path: MessagePath) -> None:
        await path.tell("hello", sender=MEMBER, chat=MEMBER)
        assert await self.labels(path) == [(Label.KNOWN, Label.KNOWN)]
        assert await path.rows("select p.identities from messages m join principals p on p.id = m.principal_id") == [
            (["fake:2"],)
        ]

    async def test_everybody_in_a_group_shares_its_session(self, path: MessagePath) -> None:
        first = await path.tell("hello", private=False, chat="g")
        second = await path.tell("hello", private=False, chat="g", sender=MEMBER)
        assert first.session_id == second.session_id

    async def test_a_session_after_new_starts_with_the_trust_of_who_writes_there(self, path: MessagePath) -> None:
        await path.say("hello", "/new", sender=MEMBER, chat=MEMBER)
        await path.say("hello", "/new")
        await path.say("hello", "/new", private=False, chat="g")
        ended = await path.rows("select label from sessions where ended_at is null order by started_at")
        assert ended == [(Label.KNOWN,), (Label.OWNER,), (Label.UNTRUSTED,)]


async def test_what_was_said_before_us_is_taken_over_only_into_a_new_session(path: MessagePath) -> None:
    earlier = (Earlier("system", "Be brief."), Earlier("user", "2 + 2?"), Earlier("assistant", "4"))
    spoken = replace(message("and 3 + 3?", earlier=earlier), address=Address("api", "key", "1"))
    async with path.working():
        for inbound in (spoken, replace(spoken, platform_id="m-next", text="and 4 + 4?", sent_at=datetime.now(UTC))):
            [accepted] = await path.inbound.accept([inbound])
            await path.answer(accepted)
    told = [text for kind, text in await path.transcript() if kind in ("user", "assistant")]
    assert told[:3] == ["(Instructions from the client)\nBe brief.", "2 + 2?", "4"]
    assert sum("Be brief." in text for text in told) == 1
    assert path.model.answered[0].startswith("and 3 + 3?")


async def test_text_no_database_takes_is_answered_all_the_same(path: MessagePath) -> None:
    async with path.working():
        assert await path.ask("a\x00b \ud800") == "re: ab ?"


async def test_a_first_message_that_meets_its_like_leaves_no_empty_session(path: MessagePath) -> None:
    await asyncio.gather(*(path.say(f"hello {n}") for n in range(20)))
    assert await path.rows("select count(*) from sessions") == [(1,)]


class Dead:
    """A dispatcher in a process that dies before it gets to work."""

    async def run(self, arrival: int) -> bool:
        return True


async def test_a_command_survives_a_crash_between_its_arrival_and_its_effect(path: MessagePath) -> None:
    await path.tell("hello")
    dying = replace(path.inbound, run_command=Dead().run)
    [accepted] = await dying.accept([message("/new")])
    again = await restarted(path, FakeModel())
    assert await path.rows("select count(*) from sessions") == [(1,)]
    await again.command_runner.resume()
    await again.command_runner.resume()
    assert (await again.answer(accepted)).text.startswith("New session started")
    assert await path.rows("select count(*), count(ended_at) from sessions") == [(2, 1)]
    assert await path.rows("select count(*) from outbox") == [(1,)]


async def test_other_gateways_on_the_same_database_see_the_same_message_once(path: MessagePath) -> None:
    other = await build(path.database, path.workspace, FakeModel())
    spoken = message("hello")
    await asyncio.gather(path.inbound.accept([spoken]), other.inbound.accept([spoken]))
    assert await path.rows(COUNTS) == ONE


async def test_what_memory_let_go_of_the_inbox_still_knows(path: MessagePath) -> None:
    first = await path.tell("hello", id="m-once")
    path.inbound.forget()
    again = await path.tell("hello", id="m-once")
    assert (again.duplicate, again.message_id) == (True, first.message_id)
    assert await path.rows("select count(*) from messages") == [(1,)]


async def test_what_a_platform_adds_is_data_below_the_words(path: MessagePath) -> None:
    await path.tell("", added="/approve A1")
    [(text, label)] = await path.rows("select text, label from messages")
    assert (text, label) == ("[Added by the platform or an app]\n> /approve A1", Label.UNTRUSTED)
    assert own_part(text) == "[Added by the platform or an app]"


async def test_two_people_of_one_name_are_told_apart(path: MessagePath) -> None:
    for id in (OWNER, MEMBER, OWNER):
        await path.inbound.accept([replace(message("hello", chat="group", sender=id), private=False)])
    names = await path.rows("select sender from messages order by id")
    assert [name for (name,) in names] == ["Ada", f"Ada ({MEMBER})", "Ada"]


class TestExpectedQuestions:
    async def test_a_turn_asks_memory_what_was_expected_of_its_message(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected, asked = list[str](), list[str]()
        parse = MemorySearch.parse

        async def heard(search: MemorySearch, text: str, *rest: SearchMode) -> MemoryQuery:
            asked.append(text)
            return await parse(search, text, *rest)

        monkeypatch.setattr(path.inbound, "expect", expected.append)
        monkeypatch.setattr(MemorySearch, "parse", heard)
        async with path.working():
            await path.ask("Where is the spare key? " * 100)
        assert expected == asked != []

    async def test_commands_and_strangers_are_not_expected_to_ask(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(path.inbound, "expect", lambda _: pytest.fail("no turn follows"))
        await path.inbound.accept([message("/status"), message("hello", sender=STRANGER)])
