from datetime import UTC, datetime, timedelta

import pytest

from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.health import HeartbeatOutcome, HeartbeatResult
from gateway.domain.ids import ScheduleId
from gateway.domain.principals import Label
from gateway.domain.work.schedules import Recurring, ScheduleDefinition
from gateway.domain.work.tasks import Status
from gateway.store.delivery import outbox
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.people import principals
from gateway.store.transcript import messages
from gateway.store.work import heartbeats, schedules, tasks
from gateway.store.work.heartbeats import LONGEST, MAX_CONCERNS, Pulse
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
    assert (await stands(begun)).beat == HeartbeatResult(NOON, HeartbeatOutcome.WAITING)


async def test_a_beat_is_noted_down_once_however_many_make_it(begun: World) -> None:
    async with begun.database.transaction() as tx:
        await heartbeats.claim(tx, NOON, Pulse(at=LATER, looked=LATER, outcome=HeartbeatOutcome.IDLE))
        second = await blocked(begun.database, beaten(begun, NOON, outcome=HeartbeatOutcome.OK))

    assert not await second
    assert (await stands(begun)).outcome is HeartbeatOutcome.IDLE


async def test_what_the_clock_was_ahead_by_is_forgotten_and_nothing_else(begun: World) -> None:
    await beaten(begun, NOON, outcome=HeartbeatOutcome.OK, looked=LATER, text="x")
    async with begun.database.connection() as conn:
        early = NOON + timedelta(microseconds=1)
        back = await heartbeats.set_back(conn, early)
        assert (back.at, back.looked, back.outcome, back.text) == (early, early, HeartbeatOutcome.OK, "x")
        assert await heartbeats.set_back(conn, LATER) == back


async def test_one_runs_at_a_time_in_a_session_of_its_own(begun: World) -> None:
    async with begun.database.transaction() as tx:
        for _ in range(2):
            await heartbeats.ask(tx, begun.principal, {"at": "noon"})
    [run] = await begun.claim(somebody(), slots=2)

    assert (run.kind, run.principal_id) == ("heartbeat", begun.principal)
    assert run.session_id not in (None, begun.session)


async def test_one_that_runs_is_known_to_until_its_task_is_over(begun: World) -> None:
    await beaten(begun, NOON, outcome=HeartbeatOutcome.RUNNING)
    async with begun.database.transaction() as tx:
        await heartbeats.ask(tx, begun.principal, {})
    assert (await stands(begun)).outcome is HeartbeatOutcome.RUNNING

    [run] = await begun.claim(somebody())
    async with begun.database.transaction() as tx:
        await tasks.finish(tx, run, Status.CANCELLED)
    assert (await stands(begun)).beat == HeartbeatResult(LATER, HeartbeatOutcome.FAILED, "it was cancelled")


@pytest.mark.parametrize(
    ("outcome", "looked", "failing"),
    [
        (HeartbeatOutcome.OK, LATER, False),
        (HeartbeatOutcome.TOLD, LATER, False),
        (HeartbeatOutcome.FAILED, NOON, True),
        (HeartbeatOutcome.SKIPPED, NOON, False),
    ],
)
async def test_how_it_ended_decides_what_has_been_looked_after(
    begun: World, outcome: HeartbeatOutcome, looked: datetime, failing: bool
) -> None:
    async with begun.database.transaction() as tx:
        await heartbeats.ended(tx, outcome, "x\x00" * LONGEST, LATER)
    pulse = await stands(begun)

    assert (pulse.outcome, pulse.looked, pulse.failing, pulse.text) == (outcome, looked, failing, "x" * LONGEST)


async def test_that_it_fails_is_remembered_over_the_next_beat(begun: World) -> None:
    async with begun.database.transaction() as tx:
        await heartbeats.ended(tx, HeartbeatOutcome.FAILED, "no", NOON)
    await beaten(begun, NOON, outcome=HeartbeatOutcome.IDLE)

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


NOW = datetime(2026, 11, 21, 14, 30, tzinfo=UTC)
BEFORE = NOW - timedelta(minutes=30)
MINUTE = timedelta(minutes=1)


async def seen(world: World, since: datetime = BEFORE, until: datetime = NOW) -> list[tuple[str, str]]:
    """Kind and name of what a look finds."""
    async with world.database.connection() as conn:
        return [(found.kind, found.what) for found in await heartbeats.concerns(conn, world.principal, since, until)]


async def schedule(world: World, name: str, due: datetime, label: Label = Label.OWNER) -> ScheduleId:
    async with world.database.transaction() as tx:
        definition = ScheduleDefinition(name, "look", Recurring("0 8 * * *"))
        row = await schedules.add(tx, world.principal, definition, next_run_at=due, origin="fake", label=label)
    assert row is not None
    return row.id


async def failed(world: World, at: datetime, kind: str = "agent", **given: object) -> None:
    task = await world.queue(kind, payload=given)
    [run] = await world.claim(somebody())
    async with world.database.transaction() as tx:
        await tasks.finish(tx, run, Status.FAILED, error="no")
    await world.do("update tasks set updated_at = $2 where id = $1", task, at)


async def said(world: World, state: str, at: datetime, *, origin: str = "agent", notice: bool = False) -> None:
    """Something in two parts, the second of which met its end at that time."""
    async with world.database.transaction() as tx:
        entry = Notice("hi") if notice else AssistantText("hi")
        row = await messages.say(
            tx, world.session, world.principal, entry, label=Label.OWNER, origin=origin, address=world.address
        )
        await outbox.put(tx, world.principal, world.address, row.id, [OutboxPart("h"), OutboxPart("i")])
    await world.do(
        """update outbox set state = case part when 0 then 'sent' else $2 end, sending_at = $3, created_at = $3
           where message_id = $1""",
        row.id,
        state,
        at,
    )


class TestSchedules:
    async def test_one_that_has_not_run_for_five_minutes_is_overdue(self, world: World) -> None:
        await schedule(world, "late", NOW - 5 * MINUTE)
        await schedule(world, "a moment late", NOW - 4 * MINUTE)

        assert await seen(world) == [("overdue", "late")]

    async def test_one_that_rests_or_is_being_run_is_not(self, world: World) -> None:
        rests, runs = await schedule(world, "rests", NOW - 6 * MINUTE), await schedule(world, "runs", NOW - 6 * MINUTE)
        await world.do("update schedules set paused_at = now() where id = $1", rests)
        await world.do("update schedules set task_id = $2 where id = $1", runs, await world.queue())

        assert await seen(world) == []

    async def test_a_name_keeps_the_trust_of_the_conversation_it_comes_from(self, world: World) -> None:
        await schedule(world, "obey me", NOW - 6 * MINUTE, Label.UNTRUSTED)
        async with world.database.connection() as conn:
            [found] = await heartbeats.concerns(conn, world.principal, BEFORE, NOW)

        assert (found.label, found.at) == (Label.UNTRUSTED, NOW - 6 * MINUTE)


class TestFailures:
    async def test_work_that_failed_is_named(self, world: World) -> None:
        await failed(world, NOW - 2 * MINUTE, name="morning news", label=2)

        assert await seen(world) == [("failed", "morning news")]

    async def test_an_answer_and_a_heartbeat_that_failed_are_told_otherwise(self, world: World) -> None:
        await failed(world, NOW - 2 * MINUTE, kind="heartbeat")
        await failed(world, NOW - 2 * MINUTE, kind="describe")

        assert await seen(world) == []


class TestDeliveries:
    @pytest.mark.parametrize(("state", "kind"), [("failed", "undelivered"), ("uncertain", "doubtful")])
    async def test_a_message_that_did_not_surely_arrive_is_found_once(
        self, world: World, state: str, kind: str
    ) -> None:
        await said(world, state, NOW - 3 * MINUTE)

        assert await seen(world) == [(kind, "fake")]

    async def test_what_arrived_or_is_on_its_way_is_not(self, world: World) -> None:
        await said(world, "sent", NOW - 3 * MINUTE)
        await said(world, "pending", NOW - 3 * MINUTE)

        assert await seen(world) == []

    async def test_neither_what_a_heartbeat_told_nor_a_notice_makes_another_heartbeat(self, world: World) -> None:
        await said(world, "failed", NOW - 3 * MINUTE, origin="heartbeat")
        await said(world, "failed", NOW - 3 * MINUTE, notice=True)

        assert await seen(world) == []


class TestMessages:
    async def test_one_without_an_answer_for_ten_minutes_is_found(self, world: World) -> None:
        for minutes in (11, 9):
            message = await world.ask("are you there?")
            await world.do("update messages set created_at = $2 where id = $1", message, NOW - minutes * MINUTE)

        assert await seen(world) == [("unanswered", "fake")]

    async def test_one_that_was_answered_or_given_up_is_not(self, world: World) -> None:
        for end in ("closed_at = now()", "seq = 100"):
            message = await world.ask("are you there?")
            await world.do(f"update messages set created_at = $2, {end} where id = $1", message, NOW - 11 * MINUTE)
        await world.answer("yes")

        assert await seen(world) == []

    async def test_the_prompt_of_a_task_is_none(self, world: World) -> None:
        message = await world.ask("look around")
        await world.do(
            "update messages set created_at = $2, address_id = null where id = $1", message, NOW - 11 * MINUTE
        )

        assert await seen(world) == []


async def test_looks_that_follow_each_other_find_everything_once(world: World) -> None:
    for minutes in range(40):
        await failed(world, NOW - timedelta(minutes=minutes, seconds=30), name=str(minutes))
    looks = [await seen(world, NOW + k * 10 * MINUTE, NOW + (k + 1) * 10 * MINUTE) for k in range(-4, 1)]
    found = [name for look in looks for _, name in look]

    assert sorted(found, key=int) == [str(minutes) for minutes in range(40)]


async def test_what_is_a_members_is_no_concern_of_the_owners(world: World) -> None:
    await schedule(world, "theirs", NOW - 6 * MINUTE)
    async with world.database.transaction() as tx:
        member = await principals.ensure_member(tx, "Bob", "fake:2")
    await world.do("update schedules set principal_id = $1", member)

    assert await seen(world) == []


async def test_there_is_an_end_to_it_the_oldest_come_first(world: World) -> None:
    for minute in range(MAX_CONCERNS + 2):
        await failed(world, BEFORE + minute * MINUTE, name=str(minute))

    assert await seen(world) == [("failed", str(minute)) for minute in range(MAX_CONCERNS)]
