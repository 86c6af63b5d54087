from datetime import UTC, datetime, timedelta

import pytest

from gateway.domain.vitals import Beat, Outcome
from gateway.domain.work.tasks import Status
from gateway.store.engine import tasks
from gateway.store.scheduling import heartbeats
from gateway.store.scheduling.heartbeats import LONGEST, Pulse
from tests.store.world import World, blocked, somebody

NOON = datetime(2026, 11, 21, 12, 0, 0, 123_456, tzinfo=UTC)
LATER = NOON + timedelta(minutes=30)


async def stands(world: World) -> Pulse:
    async with world.database.connection() as conn:
        return await heartbeats.begin(conn, LATER)


async def beaten(world: World, before: datetime, **after: object) -> bool:
    pulse = Pulse.model_validate({"at": LATER, "looked": NOON, **after})
    async with world.database.transaction() as tx:
        return await heartbeats.claim(tx, before, pulse)


@pytest.fixture
async def begun(world: World) -> World:
    """It has been waited for since noon."""
    async with world.database.connection() as conn:
        await heartbeats.begin(conn, NOON)
    return world


async def test_it_is_waited_for_from_the_first_look_on(begun: World) -> None:
    assert (await stands(begun)).beat == Beat(NOON, Outcome.WAITING)


async def test_a_beat_is_noted_down_once_however_many_make_it(begun: World) -> None:
    async with begun.database.transaction() as tx:
        await heartbeats.claim(tx, NOON, Pulse(at=LATER, looked=LATER, outcome=Outcome.IDLE))
        second = await blocked(begun.database, beaten(begun, NOON, outcome=Outcome.OK))

    assert not await second
    assert (await stands(begun)).outcome is Outcome.IDLE


async def test_what_the_clock_was_ahead_by_is_forgotten_and_nothing_else(begun: World) -> None:
    await beaten(begun, NOON, outcome=Outcome.OK, looked=LATER, text="x")
    async with begun.database.connection() as conn:
        early = NOON + timedelta(microseconds=1)
        back = await heartbeats.set_back(conn, early)
        assert (back.at, back.looked, back.outcome, back.text) == (early, early, Outcome.OK, "x")
        assert await heartbeats.set_back(conn, LATER) == back


async def test_one_runs_at_a_time_in_a_session_of_its_own(begun: World) -> None:
    async with begun.database.transaction() as tx:
        for _ in range(2):
            await heartbeats.ask(tx, begun.principal, {"at": "noon"})
    [run] = await begun.claim(somebody(), slots=2)

    assert (run.kind, run.principal_id) == ("heartbeat", begun.principal)
    assert run.session_id not in (None, begun.session)


async def test_one_that_runs_is_known_to_until_its_task_is_over(begun: World) -> None:
    await beaten(begun, NOON, outcome=Outcome.RUNNING)
    async with begun.database.transaction() as tx:
        await heartbeats.ask(tx, begun.principal, {})
    assert (await stands(begun)).outcome is Outcome.RUNNING

    [run] = await begun.claim(somebody())
    async with begun.database.transaction() as tx:
        await tasks.finish(tx, run, Status.CANCELLED)
    assert (await stands(begun)).beat == Beat(LATER, Outcome.FAILED, "it was cancelled")


@pytest.mark.parametrize(
    ("outcome", "looked", "failing"),
    [
        (Outcome.OK, LATER, False),
        (Outcome.TOLD, LATER, False),
        (Outcome.FAILED, NOON, True),
        (Outcome.SKIPPED, NOON, False),
    ],
)
async def test_how_it_ended_decides_what_has_been_looked_after(
    begun: World, outcome: Outcome, looked: datetime, failing: bool
) -> None:
    async with begun.database.transaction() as tx:
        await heartbeats.ended(tx, outcome, "x\x00" * LONGEST, LATER)
    pulse = await stands(begun)

    assert (pulse.outcome, pulse.looked, pulse.failing, pulse.text) == (outcome, looked, failing, "x" * LONGEST)


async def test_that_it_fails_is_remembered_over_the_next_beat(begun: World) -> None:
    async with begun.database.transaction() as tx:
        await heartbeats.ended(tx, Outcome.FAILED, "no", NOON)
    await beaten(begun, NOON, outcome=Outcome.IDLE)

    assert (await stands(begun)).failing


async def test_only_what_heartbeats_cost_since_then_is_counted(begun: World) -> None:
    for kind, at in (("heartbeat", NOON), ("heartbeat", LATER), ("agent", LATER)):
        task = await begun.queue(kind)
        await begun.do(
            """insert into task_steps (task_id, principal_id, kind, name, cost_usd, created_at)
               values ($1, $2, 'model', 'm', 0.25, $3)""",
            task,
            begun.principal,
            at,
        )
    async with begun.database.connection() as conn:
        assert await heartbeats.spent(conn, LATER) == 0.25
