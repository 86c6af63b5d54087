"""What is due becomes a task, whatever else goes wrong."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from gateway.background.upkeep import schedules as scheduler_module
from gateway.background.upkeep.schedules import BATCH
from gateway.config.failpoints import Failpoints, Step
from gateway.domain.errors import DatabaseDown
from gateway.domain.ids import PrincipalId
from gateway.flow.signals import Signals
from gateway.store.connection.pool import Connection, Database
from gateway.store.people import principals
from gateway.store.work import schedules
from gateway.store.work.schedules import ScheduleRow
from tests.background.timeline import HOUR, START, Timeline, once, recurring, scheduler_on
from tests.store.world import World

MINUTE = timedelta(minutes=1)


@pytest.fixture
def timeline(world: World) -> Timeline:
    return Timeline(world)


async def errors(timeline: Timeline, row: ScheduleRow) -> list[str | None]:
    async with timeline.world.database.connection() as conn:
        return [run.error for run in await schedules.runs(conn, row.id)]


class TestTicks:
    async def test_what_is_due_is_queued_and_nothing_else(self, timeline: Timeline) -> None:
        tea = await timeline.plan(recurring("0 * * * *"))
        dentist = await timeline.plan(once(START + 90 * MINUTE))
        await timeline.reach(START + 59 * MINUTE)
        assert await timeline.ran(tea) == []
        await timeline.reach(START + HOUR)
        await timeline.reach(START + 90 * MINUTE)
        await timeline.reach(START + 2 * HOUR)
        assert await timeline.ran(tea) == [START + HOUR, START + 2 * HOUR]
        assert await timeline.ran(dentist) == [START + 90 * MINUTE]

    async def test_a_run_that_is_not_over_is_not_overtaken(self, timeline: Timeline) -> None:
        tea = await timeline.plan(recurring("0 * * * *"))
        timeline.clock.at = START + HOUR
        assert await timeline.scheduler.tick() == 1
        timeline.clock.at = START + 3 * HOUR
        assert await timeline.scheduler.tick() == 0
        await timeline.world.do("update tasks set status = 'failed'")
        assert await timeline.scheduler.tick() == 1
        assert (await timeline.ran(tea))[0] == START + HOUR
        assert set((await timeline.accounted(tea)).values()) == {1}

    async def test_more_than_a_batch_at_one_instant_is_queued_all_the_same(self, timeline: Timeline) -> None:
        rows = [await timeline.plan(once(START + HOUR, str(number))) for number in range(BATCH + 5)]
        timeline.clock.at = START + HOUR
        assert await timeline.scheduler.tick() == len(rows)
        assert await timeline.world.value("select count(*) from tasks") == len(rows)

    async def test_the_agent_is_told_what_it_missed(self, timeline: Timeline) -> None:
        await timeline.plan(recurring("0 * * * *"))
        await timeline.reach(START + 3 * HOUR + MINUTE)
        prompt = await timeline.world.value("select input->>'prompt' from tasks")
        assert "Planned for: Sun 1 Mar 2026 15:00 UTC" in prompt
        assert "Missed before it and not run: 2" in prompt


class Noting(Failpoints):
    """Notes the steps that are reached."""

    def __init__(self) -> None:
        super().__init__(None)
        self.reached: list[Step] = []

    def reach(self, step: Step) -> None:
        self.reached.append(step)


class TestWhoHears:
    async def test_the_worker_is_woken_when_there_is_something_to_claim(self, timeline: Timeline) -> None:
        await timeline.plan(once(START + HOUR))
        signals = Signals()
        scheduler = scheduler_on(timeline.world.database, timeline.clock, signals=signals)
        await scheduler.tick()
        assert not signals.tasks.is_set()
        timeline.clock.at = START + HOUR
        await scheduler.tick()
        assert signals.tasks.is_set()

    async def test_the_steps_are_reached_only_when_something_is_due(self, timeline: Timeline) -> None:
        await timeline.plan(once(START + HOUR))
        steps = Noting()
        scheduler = scheduler_on(timeline.world.database, timeline.clock, failpoints=steps)
        await scheduler.tick()
        assert steps.reached == []
        timeline.clock.at = START + HOUR
        await scheduler.tick()
        await scheduler.tick()
        assert steps.reached == [Step.SCHEDULE_DUE, Step.SCHEDULE_ENQUEUED]


class TestNextLook:
    async def test_it_is_when_the_next_slot_is_due(self, timeline: Timeline) -> None:
        assert await timeline.scheduler.look() is None
        await timeline.plan(once(START + HOUR))
        assert await timeline.scheduler.look() == START + HOUR

    async def test_what_comes_while_it_looks_is_not_left_for_later(
        self, timeline: Timeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await timeline.plan(once(START + HOUR))
        await timeline.plan(once(START + HOUR - timedelta(seconds=1), "tea"))
        timeline.clock.at = START + HOUR - timedelta(milliseconds=1)

        def woken() -> None:
            timeline.clock.at += timedelta(seconds=1)

        signals = Signals()
        monkeypatch.setattr(signals.tasks, "set", woken)
        assert await scheduler_on(timeline.world.database, timeline.clock, signals=signals).look() == START + HOUR

    async def test_what_waits_for_its_last_run_is_looked_at_soon(self, timeline: Timeline) -> None:
        await timeline.plan(recurring("* * * * *"))
        timeline.clock.at = START + MINUTE
        await timeline.scheduler.tick()
        timeline.clock.at = START + 3 * MINUTE
        assert await timeline.scheduler.look() == timeline.clock.at + timedelta(seconds=5)

    async def test_after_a_look_that_failed_the_next_one_queues_what_is_due(self, timeline: Timeline) -> None:
        async def broken(_tx: Connection, _principal: PrincipalId) -> bool:
            raise DatabaseDown("away")

        await timeline.plan(once(START + HOUR))
        timeline.clock.at = START + HOUR
        with pytest.raises(DatabaseDown):
            await scheduler_on(timeline.world.database, timeline.clock, may_run=broken).look()
        await timeline.scheduler.look()
        assert await timeline.world.value("select count(*) from tasks") == 1


class TestDefects:
    @pytest.mark.parametrize(
        ("column", "value", "why"),
        [
            ("cron", "61 * * * *", "61"),
            ("cron", "every day", "5 fields"),
            ("zone", "Mars/Olympus", "Mars/Olympus"),
        ],
    )
    async def test_one_that_cannot_go_on_is_paused_and_stops_no_other(
        self, timeline: Timeline, column: str, value: str, why: str
    ) -> None:
        broken, sound = await timeline.plan(recurring("0 * * * *")), await timeline.plan(once(START + HOUR))
        await timeline.world.do(f"update schedules set {column} = $2 where id = $1", broken.id, value)
        await timeline.reach(START + HOUR)
        assert await timeline.ran(sound) == [START + HOUR]
        assert await timeline.ran(broken) == []
        [error] = await errors(timeline, broken)
        assert error is not None
        assert error.startswith("paused: ")
        assert why in error
        await timeline.reach(START + 5 * HOUR)
        assert len(await errors(timeline, broken)) == 1

    async def test_so_is_one_that_ought_never_to_be_due(self, timeline: Timeline) -> None:
        row = await timeline.plan(recurring("0 * * * *"))
        await timeline.world.do("update schedules set cron = null")
        await timeline.reach(START + HOUR)
        assert await timeline.ran(row) == []
        assert await timeline.scheduler.look() is None

    async def test_a_defect_of_ours_is_told_by_its_name(
        self, timeline: Timeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise ZeroDivisionError("by zero")

        row = await timeline.plan(recurring("0 * * * *"))
        monkeypatch.setattr(scheduler_module, "plan", broken)
        await timeline.reach(START + HOUR)
        assert await errors(timeline, row) == ["paused: ZeroDivisionError: by zero"]

    async def test_who_is_not_let_in_any_more_has_nothing_run(self, world: World) -> None:
        timeline = Timeline(world)
        mine = await timeline.plan(once(START + HOUR))
        async with world.database.transaction() as tx:
            gone = await principals.ensure_member(tx, "Eve", "fake:2")
        theirs = await timeline.plan(once(START + HOUR, "theirs"))
        await world.do("update schedules set principal_id = $2 where id = $1", theirs.id, gone)

        async def may_run(_tx: Connection, principal: PrincipalId) -> bool:
            return principal == world.principal

        timeline.clock.at = START + HOUR
        assert await scheduler_on(world.database, timeline.clock, may_run=may_run).tick() == 1
        assert await timeline.ran(mine) == [START + HOUR]
        assert await errors(timeline, theirs) == ["paused: its person no longer has access"]


class Unconfirmed(Database):
    """Its first transaction is committed, and nobody hears of it."""

    lost = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with super().transaction() as tx:
            yield tx
        if not self.lost:
            self.lost = True
            raise DatabaseDown("the reply to the commit got lost")


class TestInterrupted:
    """Whatever is cut short is done again as a whole, so that each slot is dealt with once."""

    async def once_each(self, timeline: Timeline, rows: list[ScheduleRow]) -> None:
        with pytest.raises(DatabaseDown):
            await timeline.scheduler.tick()
        await timeline.scheduler.tick()
        assert [await timeline.ran(row) for row in rows] == [[START + HOUR]] * len(rows)
        assert await timeline.world.column("select next_run_at from schedules") == [START + 2 * HOUR] * len(rows)
        for table in ("schedule_runs", "tasks"):
            assert await timeline.world.value(f"select count(*) from {table}") == len(rows)
        assert await timeline.world.value("select count(*) from sessions") == len(rows) + 1

    @pytest.fixture
    async def rows(self, timeline: Timeline) -> list[ScheduleRow]:
        rows = [await timeline.plan(recurring("0 * * * *", name=str(number))) for number in range(3)]
        timeline.clock.at = START + HOUR
        return rows

    @pytest.mark.parametrize("statement", ["due", "enqueue"])
    @pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
    async def test_between_two_statements(
        self,
        timeline: Timeline,
        rows: list[ScheduleRow],
        monkeypatch: pytest.MonkeyPatch,
        statement: str,
        done: bool,
    ) -> None:
        really, left = getattr(schedules, statement), [DatabaseDown("gone")]

        async def interrupted(*arguments: object) -> object:
            result = await really(*arguments) if done or not left else None
            if left:
                raise left.pop()
            return result

        monkeypatch.setattr(schedules, statement, interrupted)
        await self.once_each(timeline, rows)

    @pytest.mark.parametrize("table", ["schedule_runs", "sessions", "tasks", "schedules"])
    async def test_in_the_middle_of_one(self, timeline: Timeline, rows: list[ScheduleRow], table: str) -> None:
        await timeline.world.do("create sequence writes")
        await timeline.world.do(
            """create function lose_the_second() returns trigger language plpgsql as $$ begin
                 if nextval('supaclaw.writes') = 2 then perform pg_terminate_backend(pg_backend_pid()); end if;
                 return new;
               end $$"""
        )
        await timeline.world.do(
            f"create trigger lose before insert or update on {table} for each row execute function lose_the_second()"
        )
        await self.once_each(timeline, rows)

    async def test_when_nobody_hears_of_the_commit(self, timeline: Timeline, rows: list[ScheduleRow], dsn: str) -> None:
        async with await Unconfirmed.connect(dsn) as database:
            timeline.scheduler = scheduler_on(database, timeline.clock)
            await self.once_each(timeline, rows)
