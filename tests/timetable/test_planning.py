from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.work.schedules import MOST_COUNTED, Definition, Misfire, Once, Plan, Recurring, When
from gateway.timetable.cron import Cron
from gateway.timetable.planning import GRACE, MAX_CATCH_UP, next_slot, next_slots, plan

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NINE = datetime(2026, 11, 21, 9, tzinfo=UTC)
TEXTS = ("* * * * *", "*/15 * * * *", "0 9 * * *", "30 2 * * *", "*/20 1-3 * * 0", "0 0 1 * *")
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns")
PAST_GRACE = GRACE + timedelta(seconds=1)


def schedule(when: When, misfire: Misfire = Misfire.RUN_ONCE, zone: str = "UTC") -> Definition:
    return Definition("name", "prompt", when, zone, misfire)


def fired(definition: Definition, due: datetime | None, clock: Iterator[datetime]) -> list[datetime]:
    """The slots that are run as time goes on as the clock says."""
    slots = []
    for now in clock:
        while due is not None and due <= now:
            planned = plan(definition, due, now)
            slots += [planned.slot] if planned.slot else []
            due = planned.next_slot
    return slots


def ticks(since: datetime, until: datetime) -> Iterator[datetime]:
    while since <= until:
        yield since
        since += MINUTE


def test_the_next_slots_are_those_it_will_have() -> None:
    assert next_slots(schedule(Recurring("0 9 * * *")), NINE, 3) == [
        NINE + days * timedelta(days=1) for days in (1, 2, 3)
    ]
    assert next_slots(schedule(Once(NINE)), NINE, 5) == [NINE]
    assert next_slots(schedule(Once(NINE)), NINE + HOUR, 5) == next_slots(schedule(None), NINE, 5) == []


def test_what_is_in_the_backlog_is_never_due() -> None:
    assert next_slot(schedule(None), NINE) is None
    assert plan(schedule(None), NINE, NINE) == Plan(None, None)


def test_a_single_time_is_due_once() -> None:
    once = schedule(Once(NINE))

    assert next_slot(once, NINE - HOUR) == NINE
    assert next_slot(once, NINE + GRACE) == NINE
    assert next_slot(once, NINE + PAST_GRACE) is None
    assert plan(once, NINE, NINE) == Plan(NINE, None)


@pytest.mark.parametrize("misfire", [Misfire.RUN_ONCE, Misfire.CATCH_UP])
def test_a_single_time_that_passed_is_made_up_for(misfire: Misfire) -> None:
    assert plan(schedule(Once(NINE), misfire), NINE, NINE + 100 * HOUR) == Plan(NINE, None)


def test_a_single_time_that_passed_may_be_skipped_instead() -> None:
    once = schedule(Once(NINE), Misfire.SKIP)

    assert plan(once, NINE, NINE + GRACE) == Plan(NINE, None)
    assert plan(once, NINE, NINE + PAST_GRACE) == Plan(None, None, 1, NINE, NINE)


@pytest.mark.parametrize("misfire", Misfire)
@pytest.mark.parametrize("when", [Once(NINE), Recurring("0 * * * *")])
def test_before_it_is_due_there_is_nothing_to_do(misfire: Misfire, when: When) -> None:
    assert plan(schedule(when, misfire), NINE, NINE - MINUTE) == Plan(None, NINE)


@pytest.mark.parametrize("misfire", Misfire)
def test_a_slot_on_time_is_run_and_the_one_after_it_is_next(misfire: Misfire) -> None:
    hourly = schedule(Recurring("0 * * * *"), misfire)

    assert plan(hourly, NINE, NINE) == Plan(NINE, NINE + HOUR)
    assert plan(hourly, NINE, NINE + GRACE) == Plan(NINE, NINE + HOUR)


def test_of_the_slots_that_passed_the_newest_is_run() -> None:
    hourly = schedule(Recurring("0 * * * *"))

    planned = plan(hourly, NINE, NINE + 3.5 * HOUR)

    assert planned == Plan(NINE + 3 * HOUR, NINE + 4 * HOUR, 3, NINE, NINE + 2 * HOUR)


def test_what_passed_is_skipped_unless_it_is_just_now() -> None:
    hourly = schedule(Recurring("0 * * * *"), Misfire.SKIP)

    late = plan(hourly, NINE, NINE + 3.5 * HOUR)
    just_now = plan(hourly, NINE, NINE + 3 * HOUR + GRACE)

    assert late == Plan(None, NINE + 4 * HOUR, 4, NINE, NINE + 3 * HOUR)
    assert just_now == Plan(NINE + 3 * HOUR, NINE + 4 * HOUR, 3, NINE, NINE + 2 * HOUR)


def test_what_passed_is_caught_up_with_one_after_the_other() -> None:
    hourly = schedule(Recurring("0 * * * *"), Misfire.CATCH_UP)
    now = NINE + 3.5 * HOUR

    assert plan(hourly, NINE, now) == Plan(NINE, NINE + HOUR)
    assert fired(hourly, NINE, iter([now])) == [NINE + n * HOUR for n in range(4)]


def test_no_more_is_caught_up_with_than_the_newest_hundred() -> None:
    hourly = schedule(Recurring("0 * * * *"), Misfire.CATCH_UP)
    now = NINE + 149 * HOUR  # 150 have passed

    planned = plan(hourly, NINE, now)

    assert planned == Plan(NINE + 50 * HOUR, NINE + 51 * HOUR, 50, NINE, NINE + 49 * HOUR)
    assert fired(hourly, NINE, iter([now])) == [NINE + n * HOUR for n in range(50, 150)]
    assert MAX_CATCH_UP == 100


@pytest.mark.parametrize("misfire", Misfire)
def test_after_a_year_no_more_than_so_many_are_counted(misfire: Misfire) -> None:
    planned = plan(schedule(Recurring("* * * * *"), misfire), NINE, NINE + 365 * 24 * HOUR + MINUTE / 2)

    assert planned.missed == MOST_COUNTED
    assert planned.missed_since == NINE
    assert planned.slot is not None
    assert planned.missed_until == planned.slot - MINUTE


@pytest.mark.parametrize("misfire", Misfire)
def test_a_clock_that_is_put_back_fires_nothing_twice_and_loses_nothing_to_come(misfire: Misfire) -> None:
    quarterly = schedule(Recurring("*/15 * * * *"), misfire, "Europe/Berlin")
    ahead, back = NINE + HOUR, NINE + timedelta(minutes=5)
    clock = [*ticks(NINE, back), *ticks(ahead + 5 * MINUTE, ahead + 10 * MINUTE), *ticks(back, NINE + 3 * HOUR)]

    slots = fired(quarterly, NINE, iter(clock))

    assert len(slots) == len(set(slots))
    assert slots == sorted(slots)
    assert [slot for slot in slots if slot > ahead] == [ahead + n * 15 * MINUTE for n in range(1, 9)]


def test_after_eight_hours_asleep_work_goes_on_at_the_next_slot() -> None:
    hourly = schedule(Recurring("0 * * * *"))
    clock = [*ticks(NINE, NINE + HOUR), *ticks(NINE + 9 * HOUR, NINE + 11 * HOUR)]

    assert fired(hourly, NINE, iter(clock)) == [NINE + n * HOUR for n in (0, 1, 9, 10, 11)]


def test_a_due_time_that_is_no_slot_of_its_own_is_taken_as_one() -> None:
    """Another tzdata may have moved them since it was set."""
    daily = schedule(Recurring("0 12 * * *"))

    assert plan(daily, NINE, NINE + HOUR) == Plan(NINE, NINE + 3 * HOUR)
    assert plan(daily, NINE, NINE + 4 * HOUR) == Plan(NINE + 3 * HOUR, NINE + 27 * HOUR)


@given(
    st.sampled_from(TEXTS),
    st.sampled_from(ZONES),
    st.sampled_from(Misfire),
    st.datetimes(datetime(2026, 1, 1), datetime(2028, 12, 31), timezones=st.just(UTC)),
    st.integers(-3_600, 40 * 86_400),
)
def test_every_slot_that_passed_is_run_or_missed_once(
    text: str, zone: str, misfire: Misfire, made: datetime, late: int
) -> None:
    definition, cron = schedule(Recurring(text), misfire, zone), Cron(text, zone)
    due = next_slot(definition, made)
    assert due is not None
    now = due + timedelta(seconds=late)

    planned = plan(definition, due, now)

    if now < due:
        assert planned == Plan(None, due)
        return
    over = list(cron.between(made, now))
    handled = [slot for slot in over if planned.next_slot is None or slot < planned.next_slot]
    assert planned.next_slot == cron.after(handled[-1])
    assert planned.missed == min(MOST_COUNTED, len(handled) - (planned.slot is not None))
    assert planned.slot in (None, handled[-1])
    if planned.missed:
        assert planned.missed_since == due
        assert planned.missed_until == handled[-1 if planned.slot is None else -2]
    if misfire is not Misfire.CATCH_UP:
        assert handled == over
