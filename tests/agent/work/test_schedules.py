"""The rules for schedules that no way of asking shows alone."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gateway.agent.work.schedules import ScheduleRequest, Schedules, schedule_line
from gateway.domain.principals import Label, Role
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.timetable.schedules import InvalidSchedule, ScheduleChanges
from tests.store.world import World, found

NOW = datetime(2026, 11, 21, 22, 2, tzinfo=UTC)
DAILY = ScheduleChanges(name="stretch", prompt="Remind them.", cron_expr="30 8 * * *")

Mine = Callable[..., AbstractAsyncContextManager[Schedules]]


@pytest.fixture
async def world(database: Database) -> World:
    return await found(database)


@pytest.fixture
def mine(world: World) -> Mine:
    """The owner's, in a transaction of its own."""

    @asynccontextmanager
    async def opened(**more: object) -> AsyncIterator[Schedules]:
        async with world.database.transaction() as tx:
            yield replace(Schedules(tx, world.principal, NOW, most=None), **more)

    return opened


async def test_a_run_by_hand_is_for_this_moment_and_moves_nothing(mine: Mine, world: World) -> None:
    async with mine() as schedules:
        row = await schedules.add(ScheduleRequest("fake", Label.OWNER, world.address), DAILY)
    async with mine() as schedules:
        ran, task = await schedules.run("stretch")
    assert await world.column("select slot from schedule_runs where task_id = $1", task) == [NOW]
    assert (ran.id, await world.value("select next_run_at from schedules")) == (row.id, row.next_run_at)
    async with mine() as schedules:
        with pytest.raises(InvalidSchedule, match="is running; wait"):
            await schedules.run("1")


async def test_what_does_not_rest_goes_on_as_it_was(mine: Mine) -> None:
    async with mine() as schedules:
        row = await schedules.add(ScheduleRequest("cli", Label.OWNER), DAILY)
        later = replace(schedules, now=row.next_run_at + timedelta(hours=1))
        assert await later.resume("1") == row


async def test_a_single_time_that_passed_while_it_rested_needs_another(mine: Mine) -> None:
    async with mine() as schedules:
        await schedules.add(
            ScheduleRequest("cli", Label.OWNER), ScheduleChanges(name="x", prompt="y", run_at="2026-11-22T09:00")
        )
        await schedules.pause("x")
        later = replace(schedules, now=NOW + timedelta(days=3))
        with pytest.raises(InvalidSchedule, match="give it a new one"):
            await later.resume("x")
        await later.update("x", ScheduleChanges(run_at="2026-11-25T09:00"), Label.OWNER)
        assert (await later.resume("x")).next_run_at == datetime(2026, 11, 25, 9, tzinfo=UTC)


async def test_a_number_may_be_anybodys_and_a_name_is_ones_own(mine: Mine, world: World) -> None:
    async with world.database.transaction() as tx:
        bob = await principals.add(tx, Role.MEMBER, "Bob", ["fake:2"])
        await Schedules(tx, bob, NOW, most=None).add(ScheduleRequest("fake", Label.OWNER), DAILY)
    async with mine() as schedules:
        for which in ("1", "stretch"):
            with pytest.raises(InvalidSchedule, match="no schedule"):
                await schedules.get(which)
    async with mine(of_all=True) as schedules:
        assert (await schedules.get("1")).principal_id == bob
        with pytest.raises(InvalidSchedule, match="no schedule 'stretch'"):
            await schedules.remove("stretch")
        own = await schedules.add(ScheduleRequest("cli", Label.OWNER), ScheduleChanges(name="1", prompt="y"))
        assert (await schedules.get("1")).id == own.id


@pytest.mark.parametrize("broken", ["zone = 'Mars/Olympus'", "cron = '0 9 31 2 *'", "cron = 'every day'"])
async def test_what_is_valid_no_more_breaks_nothing_and_can_be_fixed(mine: Mine, world: World, broken: str) -> None:
    async with mine() as schedules:
        await schedules.add(ScheduleRequest("cli", Label.OWNER), DAILY)
        await schedules.add(
            ScheduleRequest("cli", Label.OWNER), ScheduleChanges(name="sound", prompt="x", run_at="2026-11-22T09:00")
        )
        await schedules.pause("stretch")
    await world.do(f"update schedules set {broken} where name = 'stretch'")
    async with mine() as schedules:
        rows, _ = await schedules.shown(everything=True)
        assert len([schedule_line(row) for row in rows]) == 2
        with pytest.raises(InvalidSchedule, match=r"Its time is no longer valid: .+ Give it a new one\."):
            await schedules.resume("stretch")
        assert (await schedules.update("stretch", ScheduleChanges(prompt="z"), Label.OWNER)).definition.prompt == "z"
        assert (await schedules.run("stretch"))[0].definition.name == "stretch"
        changed = await schedules.update("stretch", ScheduleChanges(cron_expr="0 9 * * *", timezone="UTC"), Label.OWNER)
        assert (await schedules.resume("stretch")).next_run_at == datetime(2026, 11, 22, 9, tzinfo=UTC)
        assert schedule_line(changed).startswith("1: stretch; every day at 09:00 UTC")


async def test_a_single_time_in_a_zone_that_is_none_any_more_is_listed(mine: Mine, world: World) -> None:
    async with mine() as schedules:
        await schedules.add(
            ScheduleRequest("cli", Label.OWNER), ScheduleChanges(name="x", prompt="y", run_at="2026-11-22T09:00")
        )
    await world.do("update schedules set zone = 'Mars/Olympus', failing_since = now()")
    async with mine() as schedules:
        assert "once, Sun 22 Nov 2026 09:00 UTC; failing since" in schedule_line(await schedules.get("x"))


async def test_nothing_said_is_nothing_changed(mine: Mine) -> None:
    async with mine() as schedules:
        row = await schedules.add(ScheduleRequest("cli", Label.OWNER), DAILY)
        assert await schedules.update("1", ScheduleChanges(name=None, prompt=None), Label.OWNER) == row
