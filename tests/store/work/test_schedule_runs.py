"""Executed, produced, delivered: each is noted when it happens, and none of them before."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.ids import MessageId, TaskId
from gateway.domain.principals import Label
from gateway.domain.work.schedules import Recurring, ScheduleDefinition
from gateway.domain.work.tasks import Assignment
from gateway.store.connection.pool import Connection
from gateway.store.delivery import outbox
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.transcript import messages, sessions
from gateway.store.work import schedule_runs, schedules, triggers
from gateway.store.work.schedule_runs import DeliveryOutcome
from gateway.store.work.schedules import RunRow, ScheduleRow
from tests.store.world import World

SLOT = datetime(2026, 11, 23, 7, 30, tzinfo=UTC)


@dataclass
class Slots:
    """A schedule whose slots come."""

    world: World
    row: ScheduleRow

    async def come(self, days: int = 0) -> TaskId:
        slot = SLOT + timedelta(days=days)
        order = Assignment(prompt="go", name="n", origin="schedule", label=Label.OWNER, schedule=self.row.id, slot=slot)
        await self.world.do("update tasks set status = 'completed'")
        async with self.world.database.transaction() as tx:
            task = await schedules.fire(tx, self.row, order)
        assert task is not None
        return task

    async def tell(self, task: TaskId, parts: int = 1) -> MessageId:
        async with self.world.database.transaction() as tx:
            told = await self._said(tx, parts)
            await schedule_runs.mark_produced(tx, task, told)
        return told

    async def tell_again(self, task: TaskId) -> MessageId:
        async with self.world.database.transaction() as tx:
            told = await self._said(tx, 1)
            await schedule_runs.set_message(tx, task, told)
        return told

    async def _said(self, tx: Connection, parts: int) -> MessageId:
        world, text = self.world, AssistantText("told", final=False)
        await sessions.lock(tx, world.session)
        row = await messages.say(tx, world.session, world.principal, text, label=Label.OWNER, address=world.address)
        await outbox.put(tx, world.principal, world.address, row.id, [OutboxPart(str(n)) for n in range(parts)])
        return row.id

    async def state(self, message: MessageId, state: str, *parts: int, error: str | None = None) -> None:
        question = "update outbox set state = $2, error = $4 where message_id = $1 and (part = any($3) or $3 = '{}')"
        await self.world.do(question, message, state, list(parts), error)

    async def run(self) -> RunRow:
        async with self.world.database.connection() as conn:
            return (await schedules.runs(conn, self.row.id))[0]

    async def deliver(self) -> int:
        """How many were noted."""
        noted = "select count(*) from schedule_runs where delivered_at is not null"
        before = await self.world.value(noted)
        async with self.world.database.transaction() as tx:
            await schedule_runs.deliver(tx)
        return await self.world.value(noted) - before

    async def arrived(self) -> list[DeliveryOutcome]:
        async with self.world.database.connection() as conn:
            return await schedule_runs.settled_deliveries(conn)

    async def waiting(self) -> bool:
        async with self.world.database.connection() as conn:
            return bool(await schedule_runs.on_their_way(conn))


@pytest.fixture
async def slots(world: World) -> Slots:
    async with world.database.transaction() as tx:
        definition = ScheduleDefinition("n", "go", Recurring("30 8 * * *"), "Europe/Berlin")
        row = await schedules.add(tx, world.principal, definition, next_run_at=SLOT, origin="cli", label=Label.OWNER)
    assert row is not None
    return Slots(world, row)


async def test_each_is_noted_by_itself(slots: Slots) -> None:
    task = await slots.come()
    async with slots.world.database.transaction() as tx:
        await schedule_runs.mark_executed(tx, task)
    run = await slots.run()
    assert (run.executed_at is None, run.produced_at, run.message_id, run.delivered_at) == (False, None, None, None)
    told = await slots.tell(task)
    run = await slots.run()
    assert (run.message_id, run.delivered_at, run.error) == (told, None, None)


async def test_with_nowhere_to_say_it_that_is_the_error(slots: Slots) -> None:
    task = await slots.come()
    async with slots.world.database.transaction() as tx:
        await schedule_runs.mark_produced(tx, task, None)
        await schedule_runs.mark_failed(tx, task, "no\x00where")
    run = await slots.run()
    assert (run.produced_at is None, run.message_id, run.error) == (False, None, "nowhere")
    assert not await slots.waiting()


async def test_it_is_delivered_when_its_last_part_is_there(slots: Slots) -> None:
    told = await slots.tell(await slots.come(), parts=2)
    await slots.state(told, "sent", 0)
    assert await slots.deliver() == 0
    assert await slots.arrived() == []
    assert await slots.waiting()
    await slots.state(told, "sent", 1)
    assert await slots.deliver() == 1
    assert (await slots.run()).delivered_at
    assert not await slots.waiting()


async def test_of_one_that_is_thought_to_fail_the_arrival_is_left_to_who_tells_of_it(slots: Slots) -> None:
    told = await slots.tell(await slots.come())
    await slots.state(told, "sent")
    async with slots.world.database.transaction() as tx:
        await schedule_runs.set_failing(tx, slots.row.id, failing=True)
    assert await slots.deliver() == 0
    [arrival] = await slots.arrived()
    assert (arrival.message_id, arrival.refused, arrival.uncertain) == (told, None, False)
    assert arrival.address_id == slots.world.address


async def test_what_was_refused_says_why_and_whether_it_was_said_before(slots: Slots) -> None:
    task = await slots.come()
    await slots.state(await slots.tell(task), "failed", error="blocked")
    [arrival] = await slots.arrived()
    assert (arrival.refused, arrival.again) == ("blocked", False)
    await slots.state(await slots.tell_again(task), "failed")
    [arrival] = await slots.arrived()
    assert (arrival.refused, arrival.again) == ("refused", True)


async def test_what_waits_for_a_channel_that_is_gone_is_refused(slots: Slots) -> None:
    told = await slots.tell(await slots.come(), parts=2)
    await slots.state(told, "sending", 0)
    async with slots.world.database.transaction() as tx:
        await schedule_runs.refuse(tx, ["fake"])
        assert [row.state for row in await outbox.of_message(tx, told)] == ["sending", "pending"]
        await schedule_runs.refuse(tx, ["web"])
        assert [row.state for row in await outbox.of_message(tx, told)] == ["sending", "failed"]
    await slots.state(told, "sent", 0)
    [arrival] = await slots.arrived()
    assert arrival.refused == "fake is not configured any more"


async def test_what_is_in_doubt_is_neither_there_nor_refused(slots: Slots) -> None:
    told = await slots.tell(await slots.come(), parts=2)
    await slots.state(told, "sent", 0)
    await slots.state(told, "uncertain", 1)
    assert await slots.deliver() == 0
    [arrival] = await slots.arrived()
    assert (arrival.refused, arrival.uncertain) == (None, True)


async def test_what_was_dealt_with_is_left_alone(slots: Slots) -> None:
    task = await slots.come()
    await slots.state(await slots.tell(task), "failed")
    [arrival] = await slots.arrived()
    async with slots.world.database.transaction() as tx:
        assert await schedule_runs.is_current(tx, arrival)
        await schedule_runs.mark_failed(tx, task, "gone")
        assert not await schedule_runs.is_current(tx, arrival)
    assert await slots.arrived() == []


async def test_how_long_it_has_failed_is_kept_until_it_works(slots: Slots) -> None:
    async with slots.world.database.transaction() as tx:
        await schedule_runs.set_failing(tx, slots.row.id, failing=True)
        first = await schedule_runs.hold(tx, slots.row.id)
    async with slots.world.database.transaction() as tx:
        await schedule_runs.set_failing(tx, slots.row.id, failing=True)
        again = await schedule_runs.hold(tx, slots.row.id)
        await schedule_runs.set_failing(tx, slots.row.id, failing=False)
        works = await schedule_runs.hold(tx, slots.row.id)
    since = [row and row.failing_since for row in (first, again, works)]
    assert since[0] is not None
    assert since == [since[0], since[0], None]


async def test_of_what_is_removed_nothing_is_known(slots: Slots) -> None:
    task = await slots.come()
    async with slots.world.database.transaction() as tx:
        assert await schedule_runs.exists(tx, task)
        await schedules.remove(tx, slots.row.id)
        assert not await schedule_runs.exists(tx, task)
        assert await schedule_runs.hold(tx, slots.row.id) is None


async def test_another_failure_of_a_source_counts_within_the_hour_of_the_clock(world: World) -> None:
    tasks = [await world.queue() for _ in range(3)]
    async with world.database.transaction() as tx:
        for task, source in zip(tasks, ("ci", "ci", "shop"), strict=True):
            await triggers.add(tx, world.principal, source, task, account="a", key=None, digest="")

    async def failed() -> bool:
        async with world.database.connection() as conn:
            return await triggers.failed_this_hour(conn, world.principal, "ci", tasks[0])

    await world.do("update tasks set status = 'failed' where id = any($1)", [tasks[0], tasks[2]])
    assert not await failed()
    await world.do("update tasks set status = 'failed', updated_at = now() where id = $1", tasks[1])
    assert await failed()
    await world.do("update tasks set updated_at = now() - interval '1 hour' where id = $1", tasks[1])
    assert not await failed()
