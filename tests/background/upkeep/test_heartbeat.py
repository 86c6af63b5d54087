"""When a heartbeat is made, and when one asks a model."""

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gateway.agent.limits import Limits
from gateway.background.upkeep.heartbeat import HeartbeatHalt, next_beat
from gateway.config.value_types import parse_hours
from gateway.domain.health import HeartbeatOutcome
from gateway.domain.settings import ModelSettings
from gateway.store.work import heartbeats, tasks
from tests.background.heart import MINUTE, NOON, Heart, heart
from tests.flow.path import MessagePath

WHY = "the key was refused"


def test_it_holds_until_the_models_are_configured_anew() -> None:
    settings = ModelSettings()
    halt = HeartbeatHalt(lambda: settings)
    assert halt.reason is None

    halt.stop(WHY)
    settings = ModelSettings()
    assert halt.reason == WHY

    settings = ModelSettings(primary="openai/gpt-x")
    assert halt.reason is None
    settings = ModelSettings()
    assert halt.reason is None


def test_it_can_be_lifted() -> None:
    halt = HeartbeatHalt(ModelSettings)
    halt.stop(WHY)
    halt.lift()

    assert halt.reason is None


HALF_HOUR = timedelta(minutes=30)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def beating(path: MessagePath) -> Heart:
    return heart(path)


class TestIdle:
    async def test_a_day_of_it_asks_no_model(self, beating: Heart) -> None:
        beating.clock.at = datetime(2026, 11, 21, tzinfo=UTC) - HALF_HOUR
        await beating.live(24.25)
        pulse = await beating.pulse()

        assert (pulse.beats, pulse.asked, beating.model.prompts) == (48, 0, [])
        assert await beating.path.rows("select kind from tasks") == []
        assert beating.timer.state == (
            "every 30m, last 00:30 idle (nothing to do), next 01:00; 48 beats today, 0 asked a model"
        )

    async def test_what_was_looked_at_is_not_looked_at_again(self, beating: Heart) -> None:
        await beating.look()
        await beating.look(30)

        assert (await beating.pulse()).looked == NOON + HALF_HOUR


class TestRhythm:
    async def test_the_first_start_makes_none_the_first_one_comes_after_the_interval(self, beating: Heart) -> None:
        await beating.look()
        await beating.look(29)
        assert (await beating.pulse()).beat.outcome is HeartbeatOutcome.WAITING

        await beating.look(1)
        assert (await beating.pulse()).beats == 1

    async def test_a_restart_makes_no_further_one(self, beating: Heart) -> None:
        await beating.live(0.75)
        for _ in range(3):
            again = heart(beating.path, beating.clock)
            await again.look()

        assert (await beating.pulse()).at == NOON + HALF_HOUR

    async def test_of_two_gateways_on_one_database_one_makes_it(self, beating: Heart) -> None:
        beating.instruct()
        other = heart(beating.path, beating.clock)
        await beating.look()
        beating.clock.at += HALF_HOUR
        await asyncio.gather(beating.look(), other.look())

        assert (await beating.pulse()).beats == 1
        assert await beating.asked() == [("pending",)]

    async def test_an_interval_that_is_changed_counts_from_the_last_one(self, beating: Heart) -> None:
        await beating.look()
        beating.configure(every="5m")
        await beating.look(6)

        assert (await beating.pulse()).beats == 1

    async def test_it_can_be_switched_off_and_on(self, beating: Heart) -> None:
        beating.configure(every=None)
        await beating.live(5)
        assert (await beating.pulse()).beats == 0
        assert beating.timer.state == "off"

        beating.configure(every="30m")
        await beating.look()
        assert (await beating.pulse()).beats == 1

    async def test_there_is_none_outside_the_hours(self, beating: Heart) -> None:
        beating.configure(active_hours="08:00-13:00")
        await beating.look()
        await beating.look(30)
        assert beating.timer.state is not None
        assert ", next Sun 08:00; " in beating.timer.state
        assert (await beating.pulse()).beats == 0

        await beating.look(18 * 60 + 30)
        assert (await beating.pulse()).beats == 1

    async def test_it_names_the_date_of_the_next_one(self, beating: Heart) -> None:
        beating.configure(every="50s")
        assert await beating.timer.look() == NOON + timedelta(seconds=50)
        await beating.live(0.1)

        assert (await beating.pulse()).at == NOON + timedelta(seconds=350)
        beating.configure(every=None)
        assert await beating.timer.look() is None

    async def test_after_a_long_sleep_of_the_machine_there_is_one_not_many(self, beating: Heart) -> None:
        await beating.look()
        await beating.look(8 * 60)
        await beating.look(1)

        pulse = await beating.pulse()
        assert (pulse.beats, pulse.at) == (1, NOON + timedelta(hours=8))

    async def test_a_clock_that_is_set_back_delays_the_next_one_by_no_more_than_the_interval(
        self, beating: Heart
    ) -> None:
        await beating.look()
        await beating.look(90)
        await beating.look(-60)
        assert (await beating.pulse()).looked == NOON + HALF_HOUR

        await beating.look(30)
        assert (await beating.pulse()).beats == 2

    async def test_a_clock_that_was_ahead_hides_nothing_that_happens_later(self, beating: Heart) -> None:
        beating.instruct()
        beating.clock.at = NOON + timedelta(days=365)
        await beating.timer.beat()
        beating.clock.at = NOON
        await beating.look()
        await beating.work()
        beating.instruct("")
        await beating.look()
        pulse = await beating.pulse()
        assert (pulse.outcome, pulse.at, pulse.looked) == (HeartbeatOutcome.TOLD, NOON, NOON)

        await beating.fail("news", NOON + 5 * MINUTE)
        await beating.look(30)
        assert await beating.asked() == [("completed",), ("pending",)]


class TestAsking:
    async def test_instructions_are_a_reason(self, beating: Heart) -> None:
        beating.instruct()
        await beating.look()
        await beating.look(30)

        assert await beating.asked() == [("pending",)]
        assert (await beating.pulse()).beat.outcome is HeartbeatOutcome.RUNNING

    async def test_what_failed_since_the_last_one_is_a_reason_too_but_once(self, beating: Heart) -> None:
        await beating.look()
        await beating.fail("news", NOON + 5 * MINUTE)
        await beating.look(30)
        await beating.work()
        await beating.look(30)

        assert await beating.asked() == [("completed",)]
        assert (await beating.pulse()).beat.outcome is HeartbeatOutcome.IDLE

    async def test_what_is_older_than_a_day_is_no_news(self, beating: Heart, monkeypatch: pytest.MonkeyPatch) -> None:
        since = []

        async def look(*given: object) -> list[heartbeats.Concern]:
            since.append(given[2])
            return []

        monkeypatch.setattr(heartbeats, "concerns", look)
        await beating.look()
        await beating.look(60 * 24 * 40)

        assert since == [NOON + timedelta(days=39)]

    async def test_one_that_is_under_way_is_not_doubled(self, beating: Heart) -> None:
        beating.instruct()
        await beating.look()
        await beating.look(30)
        await beating.look(30)
        assert beating.timer.state is not None
        assert "is running" in beating.timer.state
        assert (await beating.timer.beat()).outcome is HeartbeatOutcome.RUNNING
        assert await beating.asked() == [("pending",)]

        await beating.work()
        await beating.look()
        assert await beating.asked() == [("completed",), ("pending",)]

    async def test_one_that_was_cancelled_is_known_to_be_over(self, beating: Heart) -> None:
        beating.instruct()
        await beating.timer.beat()
        run = await beating.path.claim(lane=tasks.Lane.AGENTS)
        async with beating.path.database.transaction() as tx:
            await tasks.cancel(tx, run.id)

        beat = (await beating.pulse()).beat
        assert (beat.outcome, beat.text) == (HeartbeatOutcome.FAILED, "it was cancelled")

    async def test_without_a_model_nobody_is_asked(self, beating: Heart) -> None:
        beating.instruct()
        beating.connected = False

        beat = await beating.timer.beat()
        assert (beat.outcome, beat.text) == (HeartbeatOutcome.SKIPPED, "no model is connected")


class TestByHand:
    async def test_it_is_made_at_once_also_if_none_is_configured(self, beating: Heart) -> None:
        beating.configure(every=None)
        beat = await beating.timer.beat()

        assert (beat.at, beat.outcome, beat.text) == (NOON, HeartbeatOutcome.IDLE, "nothing to do")
        beating.configure(every="30m")
        await beating.timer.beat()
        assert beating.timer.state is not None
        assert "; 2 beats today" in beating.timer.state

    async def test_instructions_that_cannot_be_read_are_told_of(self, beating: Heart) -> None:
        (beating.path.workspace / "HEARTBEAT.md").symlink_to("/etc/hostname")
        beat = await beating.timer.beat()

        assert beat.outcome is HeartbeatOutcome.IDLE
        assert beat.text.startswith("HEARTBEAT.md could not be read: ")

    async def test_two_at_once_are_one(self, beating: Heart) -> None:
        beating.instruct()
        beats = await asyncio.gather(*(beating.timer.beat() for _ in range(3)))

        assert [beat.outcome for beat in beats] == [HeartbeatOutcome.RUNNING] * 3
        assert await beating.asked() == [("pending",)]


class TestMoney:
    async def test_what_heartbeats_may_cost_a_day_ends_them_and_is_told_once_a_day(self, beating: Heart) -> None:
        beating.instruct()
        beating.configure(day_usd=0.05)
        await beating.spend(0.06)
        await beating.spend(5, kind="agent")
        await beating.live(1.25)
        assert beating.told == [
            "The heartbeat is paused: heartbeats cost $0.0600 today, and heartbeat.day_usd allows $0.0500; it resumes "
            "tomorrow (UTC)."
        ]
        assert await beating.asked() == [("completed",)]

        await beating.look(12 * 60)
        assert await beating.asked() == [("completed",), ("pending",)]

    async def test_what_all_models_may_cost_ends_them_too(self, beating: Heart) -> None:
        beating.instruct()
        beating.limits = Limits(day_usd=1.0)
        await beating.spend(1.5, kind="agent")
        beats = [await beating.timer.beat(), await beating.timer.beat()]

        assert [beat.outcome for beat in beats] == [HeartbeatOutcome.SKIPPED] * 2
        assert beats[0].text == "the model budget is used up; /budget shows it, /budget more raises it"
        assert len(beating.told) == 1

    async def test_the_next_day_without_money_is_told_again(self, beating: Heart) -> None:
        beating.instruct()
        beating.configure(day_usd=0.05)
        for day in range(2):
            await beating.spend(0.06, at=NOON + timedelta(days=day))
            await beating.look(24 * 60 * min(day, 1))
            await beating.look(30)

        assert len(beating.told) == 2

    async def test_idle_beats_go_on_without_money(self, beating: Heart) -> None:
        beating.configure(day_usd=0.05)
        await beating.spend(0.06)

        assert (await beating.timer.beat()).outcome is HeartbeatOutcome.IDLE
        assert beating.told == []


class TestHalt:
    async def test_none_is_made_until_the_models_are_configured_anew(self, beating: Heart) -> None:
        await beating.look()
        beating.halt.stop("the key was refused")
        await beating.look(60)
        assert (await beating.pulse()).beats == 0
        assert beating.timer.state == "stopped: the key was refused"

        beating.connect("openai/gpt-x")
        await beating.look()
        assert (await beating.pulse()).beats == 1


@pytest.mark.parametrize(
    ("now", "hours", "expected"),
    [
        ("2026-11-21 11:00", None, "2026-11-21 11:00"),
        ("2026-11-21 11:00", "08:00-13:00", "2026-11-21 11:00"),
        ("2026-11-21 12:00", "08:00-13:00", "2026-11-22 07:00"),
        ("2026-11-21 06:00", "08:00-13:00", "2026-11-21 07:00"),
        ("2026-11-21 22:00", "22:00-06:00", "2026-11-21 22:00"),
        ("2026-11-21 12:00", "22:00-06:00", "2026-11-21 21:00"),
        ("2026-03-28 20:00", "02:30-05:00", "2026-03-29 01:30"),
        ("2026-10-24 20:00", "02:30-05:00", "2026-10-25 00:30"),
        ("2026-10-24 20:00", "08:00-09:00", "2026-10-25 07:00"),
        ("2026-10-25 01:10", "02:30-05:00", "2026-10-25 01:30"),
    ],
)
def test_the_next_one_is_when_the_hours_begin_on_the_wall(now: str, hours: str | None, expected: str) -> None:
    late = datetime.fromisoformat(now).replace(tzinfo=UTC)
    window = parse_hours(hours) if hours else None

    assert next_beat(late - HALF_HOUR, HALF_HOUR, window, BERLIN, late) == datetime.fromisoformat(expected).replace(
        tzinfo=UTC
    )
