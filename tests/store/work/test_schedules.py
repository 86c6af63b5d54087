"""Schedules, the slots that were dealt with, and the tasks that came of them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from asyncpg.connection import LoggedQuery

from gateway.domain.ids import TaskId
from gateway.domain.principals import Label
from gateway.domain.work.schedules import Misfire, Once, Recurring, ScheduleDefinition, SlotPlan
from gateway.domain.work.tasks import Assignment, Status
from gateway.store.people import principals
from gateway.store.work import schedules
from gateway.store.work.schedules import Firing, ScheduleRow
from tests.store.world import World, blocked, held, somebody

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAILY = ScheduleDefinition("tea", "Make tea.", Recurring("0 12 * * *"), "Europe/Berlin", Misfire.CATCH_UP, True)
REMINDER = ScheduleDefinition("dentist", "Remind me.", Once(NOON))


async def planned(
    world: World, definition: ScheduleDefinition = DAILY, at: datetime | None = NOON, **more: Any
) -> ScheduleRow:
    async with world.database.connection() as conn:
        row = await schedules.add(
            conn, world.principal, definition, next_run_at=at, origin="fake", **{"label": Label.OWNER, **more}
        )
    assert row is not None
    return row


async def due(world: World, now: datetime = NOON, limit: int = 50) -> list[ScheduleRow]:
    async with world.database.transaction() as tx:
        return await schedules.due(tx, now, limit)


def firing(row: ScheduleRow, slot: datetime = NOON, next_slot: datetime | None = NOON + HOUR, **more: Any) -> Firing:
    work = Assignment(prompt="Do it.", name="tea", origin="schedule", label=Label.OWNER, schedule=row.id, slot=slot)
    return Firing(row, SlotPlan(slot, next_slot, **more), work)


async def enqueue(world: World, firings: Sequence[Firing]) -> int:
    async with world.database.transaction() as tx:
        return await schedules.enqueue(tx, firings)


async def now_of(world: World, row: ScheduleRow) -> ScheduleRow:
    async with world.database.connection() as conn:
        found = await schedules.get(conn, None, str(row.id))
    assert found is not None
    return found


async def end_all(world: World) -> None:
    await world.do("update tasks set status = 'completed'")


class TestDefinitions:
    async def test_comes_back_as_it_was_given(self, world: World) -> None:
        for definition in (DAILY, REMINDER, ScheduleDefinition("idea", "Later.", None)):
            row = await planned(world, definition, address=world.address, label=Label.UNTRUSTED)
            assert row == await now_of(world, row)
            assert (row.definition, row.address_id, row.label) == (definition, world.address, Label.UNTRUSTED)

    async def test_a_name_is_taken_while_its_schedule_lives(self, world: World) -> None:
        first = await planned(world)
        async with world.database.connection() as conn:
            again = replace(DAILY, name="TEA")
            assert (
                await schedules.add(conn, world.principal, again, next_run_at=NOON, origin="fake", label=Label.OWNER)
                is None
            )
            await world.do("update schedules set completed_at = now() where id = $1", first.id)
            assert (
                await schedules.add(conn, world.principal, again, next_run_at=NOON, origin="fake", label=Label.OWNER)
                is not None
            )

    async def test_the_same_call_makes_one(self, world: World) -> None:
        first = await planned(world, asked_by="t/1")
        assert await planned(world, asked_by="t/1") == first
        assert await world.value("select count(*) from schedules") == 1

    async def test_another_definition_starts_it_anew_unless_the_name_is_taken(self, world: World) -> None:
        row = await planned(world, REMINDER)
        await planned(world)
        await world.do("update schedules set completed_at = now() where id = $1", row.id)
        async with world.database.connection() as conn:
            assert await schedules.update(conn, row.id, DAILY, NOON, label=Label.OWNER) is None
            other = replace(DAILY, name="coffee")
            changed = await schedules.update(conn, row.id, other, NOON + HOUR, label=Label.OWNER)
        assert changed is not None
        assert (changed.definition, changed.next_run_at, changed.completed_at) == (other, NOON + HOUR, None)

    async def test_it_rests_and_goes_on(self, world: World) -> None:
        row = await planned(world)
        async with world.database.connection() as conn:
            resting = await schedules.pause(conn, row.id, paused=True, next_run_at=None)
            assert resting is not None
            assert resting.paused_at is not None
            assert await schedules.listed(conn, world.principal) == []
            assert await schedules.listed(conn, world.principal, everything=True) == [resting]
            going = await schedules.pause(conn, row.id, paused=False, next_run_at=NOON + HOUR)
        assert going is not None
        assert (going.paused_at, going.next_run_at) == (None, NOON + HOUR)

    async def test_is_found_by_number_or_name_by_whose_it_is(self, world: World) -> None:
        row = await planned(world)
        async with world.database.transaction() as tx:
            other = await principals.ensure_member(tx, "Eve", "fake:2")
            for which in (str(row.id), "Tea"):
                assert await schedules.get(tx, world.principal, which) == row
                assert await schedules.get(tx, other, which) is None
            assert await schedules.count(tx, world.principal) == 1
            assert await schedules.count(tx, other) == 0

    async def test_is_removed_with_its_runs_while_one_of_them_goes_on(self, world: World) -> None:
        row = await planned(world)
        await enqueue(world, [firing(row)])
        async with world.database.connection() as conn:
            assert await schedules.remove(conn, row.id)
            assert not await schedules.remove(conn, row.id)
        assert await world.value("select count(*) from schedule_runs") == 0
        assert await world.column("select status from tasks") == ["pending"]


class TestDue:
    async def test_what_has_come_is_due_the_longest_due_first(self, world: World) -> None:
        def named(name: str) -> ScheduleDefinition:
            return replace(DAILY, name=name)

        late = await planned(world, named("late"), NOON)
        later = await planned(world, named("later"), NOON - HOUR)
        await planned(world, named("not yet"), NOON + timedelta(microseconds=1))
        await planned(world, ScheduleDefinition("idea", "Later.", None), None)
        paused = await planned(world, named("paused"))
        await world.do("update schedules set paused_at = now() where id = $1", paused.id)
        assert await due(world) == [later, late]
        assert await due(world, limit=1) == [later]

    async def test_one_whose_last_run_goes_on_waits_for_its_end(self, world: World) -> None:
        row = await planned(world)
        await enqueue(world, [firing(row, next_slot=NOON)])
        for status in Status:
            await world.do("update tasks set status = $1", status.value)
            over = status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
            assert [each.id for each in await due(world)] == [row.id] * over

    async def test_what_another_holds_is_left_to_it(self, world: World) -> None:
        first, second = await planned(world), await planned(world, REMINDER)
        async with held(world.database, "select from schedules where id = $1 for no key update", first.id):
            assert await due(world) == [second]

    async def test_the_next_is_the_first_of_all_that_do_not_rest(self, world: World) -> None:
        first = await planned(world, REMINDER)
        await planned(world, DAILY, NOON + HOUR)
        async with world.database.connection() as conn:
            assert await schedules.next_due(conn) == NOON
            await world.do("update schedules set paused_at = now() where id = $1", first.id)
            assert await schedules.next_due(conn) == NOON + HOUR
            await world.do("update schedules set paused_at = now()")
            assert await schedules.next_due(conn) is None

    async def test_among_ten_thousand_an_index_finds_it(self, world: World) -> None:
        await world.do(
            """insert into schedules (principal_id, name, prompt, cron, origin, next_run_at)
               select $1, 'schedule ' || n, 'Do it.', '* * * * *', 'fake', $2::timestamptz + n * interval '1 minute'
               from generate_series(1, 10000) n""",
            world.principal,
            NOON,
        )
        await world.do("analyze schedules")
        queries: list[LoggedQuery] = []
        async with world.database.transaction() as tx:
            with tx.query_logger(queries.append):
                await schedules.due(tx, NOON + HOUR, 50)
                await schedules.next_due(tx)
            for query in (each for each in queries if "schedules" in each.query):
                plan = "\n".join(row[0] for row in await tx.fetch(f"explain {query.query}", *query.args))
                assert "schedules_due" in plan
                assert "Seq Scan on schedules" not in plan
        assert len(queries) == 3


class TestEnqueue:
    async def test_a_slot_becomes_a_task_in_a_session_of_its_own(self, world: World) -> None:
        row = await planned(world, label=Label.KNOWN)
        todo = firing(row, missed=2, missed_since=NOON - 2 * HOUR, missed_until=NOON - HOUR)
        assert await enqueue(world, [todo]) == 1
        [run] = await world.claim(somebody())
        assert (run.kind, run.agent, run.principal_id) == ("agent", "default", world.principal)
        assert run.session_id not in (None, world.session)
        assert await world.value("select label from sessions where id = $1", run.session_id) == Label.KNOWN
        given = await world.value("select input from tasks")
        assert Assignment.model_validate(given) == todo.assignment
        assert await world.value("select dedupe from tasks") == f"schedule:{row.id}:2026-03-01T12:00:00+00:00"
        assert await world.value("select master_id = id from tasks")
        async with world.database.connection() as conn:
            [told] = await schedules.runs(conn, row.id)
        assert (told.slot, told.task_id, told.missed, told.missed_since) == (NOON, run.id, 2, NOON - 2 * HOUR)
        after = await now_of(world, row)
        assert (after.next_run_at, after.task_id, after.completed_at) == (NOON + HOUR, run.id, None)

    async def test_a_slot_that_was_dealt_with_gets_nothing_more(self, world: World) -> None:
        row = await planned(world)
        await enqueue(world, [firing(row)])
        task = (await now_of(world, row)).task_id
        await end_all(world)
        await world.do("update schedules set next_run_at = $1", NOON)
        assert await enqueue(world, [firing(row, next_slot=NOON + 2 * HOUR)]) == 0
        assert await world.value("select count(*) from tasks") == 1
        assert await world.value("select count(*) from sessions") == 2
        after = await now_of(world, row)
        assert (after.next_run_at, after.task_id) == (NOON + 2 * HOUR, task)

    async def test_what_is_missed_is_seen_and_not_run(self, world: World) -> None:
        row = await planned(world)
        missed = SlotPlan(None, NOON + HOUR, 3, NOON - 2 * HOUR, NOON)
        assert await enqueue(world, [Firing(row, missed, None)]) == 0
        async with world.database.connection() as conn:
            [told] = await schedules.runs(conn, row.id)
        assert (told.slot, told.task_id, told.missed, told.missed_since) == (NOON, None, 3, NOON - 2 * HOUR)
        assert await world.value("select count(*) from tasks") == 0
        assert (await now_of(world, row)).next_run_at == NOON + HOUR

    async def test_once_is_over_when_its_slot_is(self, world: World) -> None:
        run, missed = await planned(world, REMINDER), await planned(world, replace(REMINDER, name="missed"))
        gone = Firing(missed, SlotPlan(None, None, 1, NOON, NOON), None)
        assert await enqueue(world, [firing(run, next_slot=None), gone]) == 1
        for row in (run, missed):
            after = await now_of(world, row)
            assert after.completed_at is not None
            assert after.next_run_at is None

    async def test_a_batch_gives_each_its_own(self, world: World) -> None:
        rows = [await planned(world, replace(DAILY, name=str(number))) for number in range(5)]
        assert await enqueue(world, [firing(row) for row in rows]) == 5
        by_task = await world.column(
            """select (t.input->>'schedule')::bigint from schedules s join tasks t on t.id = s.task_id
               join schedule_runs r on r.task_id = t.id and r.schedule_id = s.id order by s.id"""
        )
        assert by_task == [row.id for row in rows]
        assert await world.value("select count(distinct session_id) from tasks") == 5
        assert await enqueue(world, []) == 0

    async def test_one_that_was_run_by_hand_since_it_was_read_waits(self, world: World) -> None:
        row = await planned(world)
        await fire(world, row)
        assert await enqueue(world, [firing(row)]) == 0
        assert (await now_of(world, row)).next_run_at == NOON
        assert await world.value("select count(*) from tasks") == 1

    async def test_a_worker_hears_of_it(self, world: World, dsn: str) -> None:
        row = await planned(world)
        heard: asyncio.Queue[str] = asyncio.Queue()
        listener = await asyncpg.connect(dsn)
        try:
            await listener.add_listener("supaclaw_task", lambda *told: heard.put_nowait(str(told[2])))
            await enqueue(world, [firing(row)])
            async with asyncio.timeout(10):
                await heard.get()
        finally:
            await listener.close()


async def fire(world: World, row: ScheduleRow, slot: datetime = NOON - HOUR) -> TaskId | None:
    assignment = firing(row, slot).assignment
    assert assignment is not None
    async with world.database.transaction() as tx:
        return await schedules.fire(tx, row, assignment)


class TestByHand:
    async def test_it_runs_once_more_and_its_plan_stays(self, world: World) -> None:
        row = await planned(world, REMINDER)
        task = await fire(world, row)
        assert await now_of(world, row) == replace(row, task_id=task)
        assert await world.value("select task_id from schedule_runs where slot = $1", NOON - HOUR) == task

    async def test_not_while_a_run_is_under_way(self, world: World) -> None:
        row = await planned(world)
        assert await fire(world, row) is not None
        assert await fire(world, row, NOON - 2 * HOUR) is None
        await end_all(world)
        assert await fire(world, row, NOON - 2 * HOUR) is not None

    async def test_two_at_once_are_one(self, world: World) -> None:
        row = await planned(world)
        first = firing(row, NOON - HOUR).assignment
        assert first is not None
        async with world.database.transaction() as other:
            assert await schedules.fire(other, row, first) is not None
            second = await blocked(world.database, fire(world, row, NOON))
        assert await second is None

    async def test_an_item_of_the_backlog_can_be_run(self, world: World) -> None:
        row = await planned(world, ScheduleDefinition("idea", "Later.", None), None)
        assert await fire(world, row) is not None
        assert (await now_of(world, row)).completed_at is None


class TestHalt:
    async def halt(self, world: World, row: ScheduleRow, error: str) -> list[str | None]:
        async with world.database.transaction() as tx:
            await schedules.halt(tx, row.id, error)
            return [run.error for run in await schedules.runs(tx, row.id)]

    async def test_it_is_paused_and_says_why(self, world: World) -> None:
        row = await planned(world)
        assert await self.halt(world, row, "no such\x00 zone") == ["no such zone"]
        assert await self.halt(world, row, "still none") == ["still none"]
        assert (await now_of(world, row)).paused_at is not None
        assert await due(world) == []

    async def test_what_a_slot_came_to_stays(self, world: World) -> None:
        row = await planned(world)
        await enqueue(world, [firing(row, next_slot=NOON)])
        assert await self.halt(world, row, "late") == [None]
