from collections.abc import Sequence
from uuid import uuid4

import pytest

from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.transcript import (
    AssistantText,
    Entry,
    Notice,
    Summary,
    ToolIntent,
    ToolResult,
    UserText,
)
from gateway.domain.ids import MessageId, SessionId, TaskId
from gateway.domain.principals import Label
from gateway.store.transcript import messages, tool_calls, unread
from gateway.store.transcript.messages import MessageRow
from tests.store.world import World, somebody


async def take(world: World, *, joining: bool = False) -> list[str]:
    async with world.database.transaction() as tx:
        return [row.text for row in await unread.take(tx, world.session, joining=joining)]


async def transcript(world: World) -> list[MessageRow]:
    async with world.database.connection() as conn:
        return await messages.transcript(conn, world.session)


async def something_left(world: World) -> bool:
    async with world.database.connection() as conn:
        return await unread.left(conn, world.session)


async def get(world: World, id: MessageId) -> MessageRow:
    async with world.database.connection() as conn:
        row = await messages.get(conn, id)
    assert row is not None
    return row


async def say(
    world: World,
    entry: AssistantText | Notice | Summary | UserText,
    task: TaskId | None = None,
    covers: int | None = None,
) -> MessageRow:
    async with world.database.transaction() as tx:
        return await messages.say(
            tx, world.session, world.principal, entry, label=Label.OWNER, task=task, covers=covers
        )


async def running_task(world: World) -> TaskId:
    await world.queue()
    [run] = await world.claim(somebody())
    return run.id


def intents(*names: str) -> list[ToolIntent]:
    return [ToolIntent(ToolCall(f"c{n}", name, '{"n": 1}'), n) for n, name in enumerate(names)]


async def intend(world: World, task: TaskId, calls: Sequence[ToolIntent]) -> None:
    async with world.database.transaction() as tx:
        await tool_calls.intend(tx, world.session, world.principal, task, calls, Label.OWNER)


async def conclude(world: World, task: TaskId, intent: ToolIntent, text: str) -> None:
    async with world.database.transaction() as tx:
        result = ToolResult(intent.call.id, text)
        await tool_calls.conclude(tx, world.session, world.principal, task, intent, result, Label.OWNER)


async def test_what_a_person_said_is_unread_until_a_turn_takes_it(world: World) -> None:
    id = await world.ask("hello")
    row = await get(world, id)
    assert (row.seq, row.open, row.label, row.sender, row.entry) == (
        None,
        True,
        Label.OWNER,
        "",
        UserText("hello", row.sent_at, "", id),
    )
    assert await something_left(world)
    assert await transcript(world) == []
    assert await take(world) == ["hello"]
    assert not await something_left(world)
    assert [row.seq for row in await transcript(world)] == [1]


async def test_labels_come_back_as_labels(world: World) -> None:
    assert isinstance((await get(world, await world.ask("hello"))).label, Label)


async def test_messages_are_taken_in_the_order_they_came(world: World) -> None:
    for text in "abc":
        await world.ask(text)
    assert await take(world) == ["a", "b", "c"]
    await world.ask("d")
    assert await take(world, joining=True) == ["d"]
    assert [(row.seq, row.text) for row in await transcript(world)] == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


async def test_taking_nothing_leaves_no_gap(world: World) -> None:
    assert await take(world) == []
    await world.ask("a")
    await take(world)
    assert [row.seq for row in await transcript(world)] == [1]


class TestSolo:
    async def test_solo_messages_are_taken_one_by_one(self, world: World) -> None:
        for text in "abc":
            await world.ask(text, solo=True)
        taken = []
        for _ in range(3):
            taken.append(await take(world))
            assert await take(world, joining=True) == []
            assert await take(world) == []
            await world.answer("done")
        assert taken == [["a"], ["b"], ["c"]]

    async def test_others_are_taken_up_to_the_first_solo_one(self, world: World) -> None:
        for text, solo in (("a", False), ("b", False), ("s", True), ("c", False), ("d", False)):
            await world.ask(text, solo=solo)
        taken = []
        for _ in range(3):
            taken.append(await take(world))
            await world.answer("done")
        assert taken == [["a", "b"], ["s"], ["c", "d"]]

    async def test_a_solo_message_does_not_join_and_holds_back_what_follows_it(self, world: World) -> None:
        await world.ask("a")
        await take(world)
        for text, solo in (("b", False), ("s", True), ("c", False)):
            await world.ask(text, solo=solo)
        assert await take(world, joining=True) == ["b"]
        assert await take(world, joining=True) == []
        assert await something_left(world)

    async def test_nothing_joins_a_solo_turn(self, world: World) -> None:
        await world.ask("s", solo=True)
        await take(world)
        await world.ask("a")
        assert await take(world, joining=True) == []
        assert await take(world) == []
        await world.answer("done")
        assert await take(world) == ["a"]


class TestAnswers:
    async def test_an_answer_answers_what_was_taken_and_nothing_else(self, world: World) -> None:
        first, second = await world.ask("a"), await world.ask("b")
        await take(world)
        late = await world.ask("late")
        answer = await world.answer("both")
        assert [(await get(world, id)).answered_by for id in (first, second, late)] == [answer, answer, None]
        assert await something_left(world)

    async def test_an_answer_stays_the_answer(self, world: World) -> None:
        first = await world.ask("a")
        await take(world)
        answer = await world.answer("one")
        await world.answer("two")
        assert (await get(world, first)).answered_by == answer

    async def test_closing_gives_up_what_has_no_answer(self, world: World) -> None:
        first = await world.ask("a")
        await take(world)
        await world.answer("done")
        second = await world.ask("b")
        async with world.database.transaction() as tx:
            assert await messages.close(tx, world.session) == 1
        assert [(await get(world, id)).open for id in (first, second)] == [False, False]
        assert (await get(world, first)).closed_at is None
        assert not await something_left(world)
        assert await take(world) == []

    async def test_the_last_answer_is_the_last_final_word_of_the_agent(self, world: World) -> None:
        async with world.database.connection() as conn:
            assert await messages.last_answer(conn, world.session) is None
        await say(world, AssistantText("the answer"))
        await say(world, AssistantText("let me look", final=False))
        await say(world, Notice("restarted"))
        async with world.database.connection() as conn:
            last = await messages.last_answer(conn, world.session)
        assert last is not None
        assert last.text == "the answer"

    async def test_it_was_asked_when_the_first_of_its_messages_came(self, world: World) -> None:
        first = await get(world, await world.ask("a"))
        await world.ask("b")
        await take(world)
        answer = await world.answer("done")
        alone = await say(world, AssistantText("by the way"))
        async with world.database.connection() as conn:
            assert await messages.asked_at(conn, answer) == first.created_at
            assert await messages.asked_at(conn, alone.id) == alone.created_at


class TestEdits:
    async def edit(self, world: World, platform_id: str | None, text: str) -> MessageId | None:
        async with world.database.transaction() as tx:
            return await unread.edit(tx, world.address, platform_id or "", text, Label.OWNER)

    async def test_an_unread_text_is_replaced(self, world: World) -> None:
        id = await world.ask("helo")
        assert await self.edit(world, (await get(world, id)).platform_id, "hello") == id
        assert await take(world) == ["hello"]

    async def test_one_that_was_taken_or_closed_is_not(self, world: World) -> None:
        taken = await world.ask("taken")
        await take(world)
        closed = await world.ask("closed")
        async with world.database.transaction() as tx:
            await messages.close(tx, world.session)
        for id in (taken, closed):
            row = await get(world, id)
            assert await self.edit(world, row.platform_id, "changed") is None
            assert (await get(world, id)).text == row.text

    async def test_nor_is_one_that_was_never_heard_of(self, world: World) -> None:
        assert await self.edit(world, "m404", "changed") is None


class TestCalls:
    async def test_intents_and_results_are_entries_in_order(self, world: World) -> None:
        task = await running_task(world)
        calls = intents("look", "send")
        await intend(world, task, calls)
        await conclude(world, task, calls[1], '{"sent":true}')
        expected: list[Entry] = [*calls, ToolResult("c1", '{"sent":true}')]
        rows = await transcript(world)
        assert [row.entry for row in rows] == expected
        assert [(row.seq, row.ordinal, row.tool, row.task_id) for row in rows] == [
            (1, 0, "look", task),
            (2, 1, "send", task),
            (3, 1, "send", task),
        ]

    async def test_the_first_result_of_a_call_stays(self, world: World) -> None:
        task = await running_task(world)
        calls = intents("look")
        await intend(world, task, calls)
        await conclude(world, task, calls[0], "first")
        await conclude(world, task, calls[0], "second")
        assert [row.text for row in await transcript(world)] == ['{"n": 1}', "first"]


async def test_everything_said_gets_a_place_of_its_own(world: World) -> None:
    rows = [await say(world, entry) for entry in (AssistantText("a", final=False), Notice("n"), AssistantText("b"))]
    assert [(row.seq, row.kind, row.final) for row in rows] == [
        (1, "assistant", False),
        (2, "notice", True),
        (3, "assistant", True),
    ]
    assert [row.entry for row in rows] == [AssistantText("a", final=False), Notice("n"), AssistantText("b")]


async def test_what_was_said_before_us_waits_for_no_answer(world: World) -> None:
    row = await say(world, UserText("earlier", (await get(world, await world.ask("x"))).sent_at))
    assert (row.kind, row.open) == ("user", False)


async def test_a_transcript_is_the_last_summary_and_what_it_does_not_cover(world: World) -> None:
    await say(world, AssistantText("old"))
    await say(world, Summary("first"), covers=1)
    await say(world, AssistantText("middle"))
    await say(world, AssistantText("kept"))
    await say(world, Summary("second"), covers=3)
    await say(world, Notice("n"))
    assert [row.entry for row in await transcript(world)] == [Summary("second"), AssistantText("kept"), Notice("n")]


async def test_an_answer_ends_its_turn_and_so_does_a_notice_in_its_place(world: World) -> None:
    task = await running_task(world)
    ends = [
        (await say(world, entry, task)).ends_turn
        for entry in (AssistantText("let me look", final=False), AssistantText("here"), Notice("I could not"))
    ]
    assert ends == [False, True, True]
    assert not (await say(world, Notice("pong"))).ends_turn


async def test_a_screen_shows_the_newest_with_the_unread_at_the_end(world: World) -> None:
    await world.ask("taken")
    await take(world)
    await world.ask("waiting")
    for text in ("one", "two"):
        await say(world, AssistantText(text))
    async with world.database.connection() as conn:
        assert [row.text for row in await messages.shown(conn, world.session)] == ["taken", "one", "two", "waiting"]
        assert [row.text for row in await messages.shown(conn, world.session, limit=2)] == ["two", "waiting"]


async def test_no_text_is_refused(world: World) -> None:
    task = await running_task(world)
    id = await world.ask("a\x00b\ud800")
    await take(world)
    broken = ToolIntent(ToolCall("c\x000", "lo\x00ok", '"\ud800"'), 0)
    await intend(world, task, [broken])
    await conclude(world, task, broken, "\x00")
    await say(world, AssistantText("\ud800"))
    async with world.database.transaction() as tx:
        await unread.edit(tx, world.address, "m1", "\x00", Label.OWNER)
    assert (await get(world, id)).text == "ab?"
    assert [row.text for row in await transcript(world)] == ["ab?", '"?"', "", "?"]


async def test_nobody_is_asked_for_a_message_that_does_not_exist(world: World) -> None:
    async with world.database.connection() as conn:
        assert await messages.get(conn, MessageId(404)) is None


@pytest.mark.parametrize("private", [True, False])
async def test_in_a_group_a_message_says_who_wrote_it(world: World, private: bool) -> None:
    id = await world.ask("hello", private=private)
    assert (await get(world, id)).sender == ("" if private else "Ada")


async def test_ids_of_sessions_do_not_mix(world: World) -> None:
    await world.ask("here")
    async with world.database.transaction() as tx:
        assert await unread.take(tx, SessionId(uuid4()), joining=False) == []
    assert await something_left(world)


async def test_the_key_of_the_next_call_does_not_depend_on_what_is_visible(world: World) -> None:
    task = await running_task(world)
    async with world.database.connection() as conn:
        assert await tool_calls.next_ordinal(conn, task) == 0
    await intend(world, task, intents("a", "b"))
    await say(world, Summary("both"), covers=2)
    async with world.database.connection() as conn:
        assert await tool_calls.next_ordinal(conn, task) == 2


async def test_when_a_task_began_to_store_counts_summaries_that_were_replaced(world: World) -> None:
    task = await running_task(world)
    async with world.database.connection() as conn:
        assert await messages.stored_since(conn, world.session, task, 0) is None
    await say(world, AssistantText("before"), task)
    first = await say(world, Summary("first"), task, covers=1)
    second = await say(world, Summary("second"), task, covers=1)
    async with world.database.connection() as conn:
        assert await messages.stored_since(conn, world.session, task, 1) == first.created_at
        assert await messages.newest_summary(conn, world.session) == second.id


async def test_a_transcript_may_have_no_summary(world: World) -> None:
    await say(world, AssistantText("a"))
    async with world.database.connection() as conn:
        assert await messages.newest_summary(conn, world.session) is None
