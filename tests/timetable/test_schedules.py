from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypedDict, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.work.schedules import MOST_COUNTED, Misfire, Once, Recurring, ScheduleDefinition, SlotPlan, When
from gateway.timetable.cron import Cron
from gateway.timetable.schedules import (
    GRACE,
    LONGEST_NAME,
    MAX_CATCH_UP,
    MAX_PROMPT,
    InvalidSchedule,
    Kind,
    ScheduleChanges,
    amend,
    define,
    end_of,
    next_slot,
    next_slots,
    plan,
)

NOW = datetime(2026, 11, 21, 10, 3, tzinfo=UTC)
DAILY = ScheduleDefinition("tea", "Make tea.", Recurring("0 16 * * *"), "Europe/London", Misfire.SKIP, True)
ONCE = ScheduleDefinition("call", "Call Bob.", Once(datetime(2026, 11, 22, 9, tzinfo=UTC)), "Europe/London")
BACKLOG = ScheduleDefinition("sort", "Sort photos.", None)


class Asked(TypedDict, total=False):
    name: str
    prompt: str
    schedule_type: Kind
    run_at: str | None
    cron_expr: str | None
    timezone: str | None
    misfire: str | None
    include_session_history: bool
    zone: str | None


def defined(**asked: Unpack[Asked]) -> ScheduleDefinition:
    plain = Asked(
        name="tea", prompt="Make tea.", schedule_type=None, run_at=None, cron_expr=None, timezone=None, zone=None
    )
    return define(**{**plain, **asked}, now=NOW)


def at(run_at: str, zone: str = "Europe/Berlin") -> datetime:
    definition = defined(schedule_type="once", run_at=run_at, zone=zone)
    assert isinstance(definition.when, Once)
    return definition.when.at


def refusal(**asked: Unpack[Asked]) -> str:
    with pytest.raises(InvalidSchedule) as refused:
        defined(**asked)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_recurring_keeps_its_fields_with_one_space_between() -> None:
    definition = defined(
        schedule_type="recurring", cron_expr=" 30 8  * * 1-5 ", timezone="Europe/Berlin", misfire="catch_up", zone="UTC"
    )

    assert definition == ScheduleDefinition(
        "tea", "Make tea.", Recurring("30 8 * * 1-5"), "Europe/Berlin", Misfire.CATCH_UP, include_session_history=False
    )


def test_a_time_without_an_offset_is_of_the_zone_that_is_named_else_of_the_users_else_utc() -> None:
    asked = Asked(schedule_type="once", run_at="2026-11-22T09:00")

    named, users, neither = (
        defined(**asked, timezone="Asia/Tokyo", zone="Europe/Berlin"),
        at("2026-11-22T09:00", "Europe/Berlin"),
        defined(**asked),
    )

    assert (named.when, named.zone) == (Once(datetime(2026, 11, 22, 0, tzinfo=UTC)), "Asia/Tokyo")
    assert users == datetime(2026, 11, 22, 8, tzinfo=UTC)
    assert (neither.when, neither.zone) == (Once(datetime(2026, 11, 22, 9, tzinfo=UTC)), "UTC")


@pytest.mark.parametrize(
    "text",
    ["2026-11-22T09:00:30+02:00", "2026-11-22T07:00:30Z", "2026-11-22 08:00:30", "2026-11-22t09:00:30.75+0200"],
)
def test_an_offset_says_the_instant_and_seconds_count(text: str) -> None:
    assert at(text) == datetime(2026, 11, 22, 7, 0, 30, tzinfo=UTC)


def test_without_a_type_the_time_says_it() -> None:
    assert isinstance(defined(run_at="2026-11-22T09:00").when, Once)
    assert isinstance(defined(cron_expr="0 9 * * *").when, Recurring)
    assert defined().when is None


def test_of_a_time_that_comes_twice_the_first_is_taken() -> None:
    assert at("2027-10-31T02:30") == datetime(2027, 10, 31, 0, 30, tzinfo=UTC)
    assert at("2027-10-31T02:30+01:00") == datetime(2027, 10, 31, 1, 30, tzinfo=UTC)


def test_a_time_just_over_is_meant_for_now() -> None:
    assert at("2026-11-21T10:02:00Z") == NOW - timedelta(seconds=60)


@pytest.mark.parametrize(
    ("run_at", "told"),
    [
        ("2026-11-22", 'run_at "2026-11-22": write a date and a time of day, such as 2027-03-01T09:00 or'),
        ("tomorrow at 9", 'run_at "tomorrow at 9": write a date and a time of day'),
        ("20261122T0900", 'run_at "20261122T0900": write a date'),
        ("2026-11-22T09:00 CET", 'run_at "2026-11-22T09:00 CET": write a date'),
        ("2026-11-22T09:00+25:00", 'run_at "2026-11-22T09:00+25:00": write a date'),
        ("2026-11-22T09:00 +02:00", 'run_at "2026-11-22T09:00 +02:00": write a date'),
        ("2026-02-30T09:00", 'run_at "2026-02-30T09:00": day '),
        ("2026-13-01T09:00", 'run_at "2026-13-01T09:00": month must be in 1..12'),
        ("2026-11-22T25:00", 'run_at "2026-11-22T25:00": hour must be in 0..23'),
        ("0001-01-01T00:00+14:00", 'run_at "0001-01-01T00:00+14:00": date value out of range'),
        ("9999-12-31T23:59Z", 'run_at "9999-12-31T23:59Z": date value out of range'),
        ("9999-12-31T23:59-14:00", 'run_at "9999-12-31T23:59-14:00": date value out of range'),
        (
            "2027-03-28T02:30",
            'run_at "2027-03-28T02:30": clocks in Europe/Berlin are put forward over it; '
            "the same time after that is 03:30",
        ),
        (
            "2026-11-21T09:00",
            "run_at Sat 21 Nov 2026 09:00 Europe/Berlin is in the past: it is Sat 21 Nov 2026 11:03 Europe/Berlin now",
        ),
        ("2037-01-01T09:00", "run_at Thu 1 Jan 2037 09:00 Europe/Berlin is more than 10 years ahead"),
    ],
)
def test_a_time_that_cannot_be_is_refused_with_what_would_be_right(run_at: str, told: str) -> None:
    assert refusal(schedule_type="once", run_at=run_at, zone="Europe/Berlin").startswith(told)


def test_what_does_not_fit_together_is_refused() -> None:
    assert refusal(schedule_type="once") == "once needs run_at: when, such as 2027-03-01T09:00"
    assert refusal(schedule_type="once", cron_expr="0 9 * * *").startswith("once needs run_at")
    assert refusal(schedule_type="recurring") == 'recurring needs cron_expr: 5 fields, such as "30 8 * * 1-5"'
    assert refusal(schedule_type="recurring", run_at="2027-03-01T09:00").startswith("recurring needs cron_expr")
    both = refusal(run_at="2027-03-01T09:00", cron_expr="0 9 * * *")
    assert both == "give run_at (once) or cron_expr (recurring), not both"


def test_a_wrong_value_is_told_by_its_name() -> None:
    assert refusal(cron_expr="0 0 9 * * *").startswith("cron_expr: needs exactly 5 fields")
    assert refusal(cron_expr="0 0 30 2 *").startswith('cron_expr: "0 0 30 2 *" never runs')
    assert refusal(timezone="Berlin") == 'timezone: "Berlin" is not an IANA time zone; did you mean Europe/Berlin?'
    assert refusal(misfire="later") == "misfire must be run_once, skip or catch_up"


def test_name_and_prompt_have_a_size() -> None:
    most = defined(name="n" * LONGEST_NAME, prompt="p" * MAX_PROMPT)

    assert (len(most.name), len(most.prompt)) == (LONGEST_NAME, MAX_PROMPT)
    assert refusal(name=" ") == "name must be one line of 1-80 characters; this has 0"
    assert refusal(name="n" * 81).endswith("this has 81")
    assert refusal(name="a\nb") == "name must be one line of 1-80 characters; this has 3"
    assert refusal(name="a\x1b[31m").startswith("name must be one line")
    assert defined(name="👩\u200d💻\u3000茶").name == "👩\u200d💻\u3000茶"
    assert refusal(prompt="\n") == "prompt must have 1-4000 characters; this has 0"
    assert refusal(prompt="p" * 4_001).endswith("this has 4001")


def amended(definition: ScheduleDefinition, **changes: Unpack[ScheduleChanges]) -> ScheduleDefinition:
    return amend(definition, now=NOW, zone="Asia/Tokyo", **changes)


@pytest.mark.parametrize("definition", [DAILY, ONCE])
def test_what_is_not_given_stays(definition: ScheduleDefinition) -> None:
    assert amended(definition) == definition
    nothing = ScheduleChanges(
        name=None, prompt=None, schedule_type=None, run_at=None, cron_expr=None, timezone=None, misfire=None
    )
    assert amended(definition, **nothing) == definition


def test_each_thing_can_be_changed_alone() -> None:
    assert amended(DAILY, name="coffee").name == "coffee"
    assert amended(DAILY, prompt="Make coffee.").prompt == "Make coffee."
    assert amended(DAILY, cron_expr="0 15 * * *").when == Recurring("0 15 * * *")
    assert amended(DAILY, timezone="Europe/Paris").zone == "Europe/Paris"
    assert amended(DAILY, misfire="run_once").misfire is Misfire.RUN_ONCE
    assert not amended(DAILY, include_session_history=False).include_session_history


def test_a_zone_that_is_none_any_more_hinders_only_what_needs_it() -> None:
    lost = replace(ONCE, zone="Mars/Olympus")

    assert amended(lost, prompt="Call Eve.").when == ONCE.when
    assert amended(lost, timezone="UTC").zone == "UTC"
    with pytest.raises(InvalidSchedule, match='timezone: "Mars/Olympus" is not an IANA time zone'):
        amended(lost, run_at="2026-11-22T16:00")


def test_one_kind_becomes_the_other() -> None:
    daily = amended(ONCE, schedule_type="recurring", cron_expr="0 9 * * *")
    once = amended(DAILY, run_at="2026-11-22T16:00")

    assert (daily.when, daily.zone) == (Recurring("0 9 * * *"), "Europe/London")
    assert once.when == Once(datetime(2026, 11, 22, 16, tzinfo=UTC))
    with pytest.raises(InvalidSchedule, match="recurring needs cron_expr"):
        amended(ONCE, schedule_type="recurring")


def test_another_zone_alone_leaves_a_single_time_the_instant_it_is() -> None:
    moved = amended(ONCE, timezone="Asia/Tokyo")

    assert (moved.when, moved.zone) == (ONCE.when, "Asia/Tokyo")


def test_a_single_time_that_is_over_does_not_hinder_other_changes() -> None:
    over = amend(ONCE, now=NOW + timedelta(days=30), zone=None, prompt="Call Eve.", schedule_type="once")

    assert (over.when, over.prompt) == (ONCE.when, "Call Eve.")


def test_what_is_in_the_backlog_stays_there_without_a_time() -> None:
    assert amended(BACKLOG, name="sort again").when is None
    with pytest.raises(InvalidSchedule, match="once needs run_at"):
        amended(BACKLOG, schedule_type="once")


def test_what_gets_a_time_for_the_first_time_gets_it_in_the_users_zone() -> None:
    assert amended(BACKLOG, cron_expr="0 9 * * *").zone == "Asia/Tokyo"
    assert amended(BACKLOG, cron_expr="0 9 * * *", timezone="UTC").zone == "UTC"


BERLIN_FORWARD = datetime(2027, 3, 28, 0, 50, 30, tzinfo=UTC)
"""01:50:30 there, ten minutes before the clocks skip an hour."""
BERLIN_BACK = datetime(2027, 10, 31, 0, 50, 30, tzinfo=UTC)
"""02:50:30 there, ten minutes before the hour comes again."""


@pytest.mark.parametrize("now", [NOW, BERLIN_FORWARD, BERLIN_BACK])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "Pacific/Chatham"])
@pytest.mark.parametrize(
    ("said", "delay"),
    [
        ("in 20 minutes", timedelta(minutes=20)),
        ("In 20 min", timedelta(minutes=20)),
        (" in an hour and 30 minutes ", timedelta(minutes=90)),
        ("in 1 hour, 5 minutes and 10 seconds", timedelta(seconds=3910)),
        ("in 2 days", timedelta(hours=48)),
        ("in 1 week", timedelta(hours=168)),
    ],
)
def test_a_delay_is_exactly_that_long_in_any_zone_and_across_clock_changes(
    now: datetime, zone: str | None, said: str, delay: timedelta
) -> None:
    definition = define(now=now, zone=zone, name="tea", prompt="Make tea.", run_at=said)
    again = amend(DAILY, now=now, zone=zone, run_at=said)

    assert definition.when == again.when == Once(now + delay)


def test_a_delay_counts_from_when_it_was_said_unless_a_clock_is_ahead() -> None:
    def due(asked_at: datetime) -> datetime:
        definition = define(
            now=NOW, zone=None, asked_at=asked_at, name="tea", prompt="Make tea.", run_at="in 20 minutes"
        )
        assert isinstance(definition.when, Once)
        return definition.when.at

    assert due(NOW - timedelta(minutes=3)) == NOW + timedelta(minutes=17)
    assert due(NOW + timedelta(minutes=3)) == NOW + timedelta(minutes=20)
    with pytest.raises(InvalidSchedule, match="is in the past: it is"):
        due(NOW - timedelta(minutes=30))


@pytest.mark.parametrize(
    "said", ["in minutes", "in 20", "20 minutes", "in -5 minutes", "in 2 months", "in 99999 minutes"]
)
def test_what_is_no_delay_is_refused(said: str) -> None:
    assert "or such as in 20 minutes" in refusal(run_at=said)


@pytest.mark.parametrize(
    ("said", "zone", "at"),
    [
        ("12:00", None, datetime(2026, 11, 21, 12, tzinfo=UTC)),
        ("9:05", None, datetime(2026, 11, 22, 9, 5, tzinfo=UTC)),
        ("10:03", None, datetime(2026, 11, 22, 10, 3, tzinfo=UTC)),
        (" 11:30 ", "Europe/Berlin", datetime(2026, 11, 21, 10, 30, tzinfo=UTC)),
        ("01:00", "Pacific/Auckland", datetime(2026, 11, 21, 12, tzinfo=UTC)),
        ("in 2 hours", "Europe/Berlin", NOW + timedelta(hours=1)),
        ("2026-12-01T09:00", "Europe/Berlin", datetime(2026, 12, 1, 8, tzinfo=UTC)),
    ],
)
def test_an_end_is_a_time_or_the_next_such_time_of_day(said: str, zone: str | None, at: datetime) -> None:
    assert end_of(said, now=NOW, zone=zone, asked_at=NOW - timedelta(hours=1)) == at


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("teatime", "write 18:00, 2027-03-01T09:00 or in 2 hours"),
        ("25:00", "is not a time"),
        ("2026-11-21T10:01", "the time Sat 21 Nov 2026 10:01 UTC is in the past"),
        ("in 1 hour", "is in the past"),
        ("2099-01-01T00:00", "more than 10 years ahead"),
    ],
)
def test_an_end_that_cannot_be_is_refused(said: str, told: str) -> None:
    with pytest.raises(InvalidSchedule, match=told):
        end_of(said, now=NOW, zone=None, asked_at=NOW - timedelta(hours=2))


def test_a_delay_has_an_end() -> None:
    assert "more than 10 years ahead" in refusal(run_at="in 9999 weeks")


MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NINE = datetime(2026, 11, 21, 9, tzinfo=UTC)
TEXTS = ("* * * * *", "*/15 * * * *", "0 9 * * *", "30 2 * * *", "*/20 1-3 * * 0", "0 0 1 * *")
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns")
PAST_GRACE = GRACE + timedelta(seconds=1)


def schedule(when: When, misfire: Misfire = Misfire.RUN_ONCE, zone: str = "UTC") -> ScheduleDefinition:
    return ScheduleDefinition("name", "prompt", when, zone, misfire)


def fired(definition: ScheduleDefinition, due: datetime | None, clock: Iterator[datetime]) -> list[datetime]:
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
    assert plan(schedule(None), NINE, NINE) == SlotPlan(None, None)


def test_a_single_time_is_due_once() -> None:
    once = schedule(Once(NINE))

    assert next_slot(once, NINE - HOUR) == NINE
    assert next_slot(once, NINE + GRACE) == NINE
    assert next_slot(once, NINE + PAST_GRACE) is None
    assert plan(once, NINE, NINE) == SlotPlan(NINE, None)


@pytest.mark.parametrize("misfire", [Misfire.RUN_ONCE, Misfire.CATCH_UP])
def test_a_single_time_that_passed_is_made_up_for(misfire: Misfire) -> None:
    assert plan(schedule(Once(NINE), misfire), NINE, NINE + 100 * HOUR) == SlotPlan(NINE, None)


def test_a_single_time_that_passed_may_be_skipped_instead() -> None:
    once = schedule(Once(NINE), Misfire.SKIP)

    assert plan(once, NINE, NINE + GRACE) == SlotPlan(NINE, None)
    assert plan(once, NINE, NINE + PAST_GRACE) == SlotPlan(None, None, 1, NINE, NINE)


@pytest.mark.parametrize("misfire", Misfire)
@pytest.mark.parametrize("when", [Once(NINE), Recurring("0 * * * *")])
def test_before_it_is_due_there_is_nothing_to_do(misfire: Misfire, when: When) -> None:
    assert plan(schedule(when, misfire), NINE, NINE - MINUTE) == SlotPlan(None, NINE)


@pytest.mark.parametrize("misfire", Misfire)
def test_a_slot_on_time_is_run_and_the_one_after_it_is_next(misfire: Misfire) -> None:
    hourly = schedule(Recurring("0 * * * *"), misfire)

    assert plan(hourly, NINE, NINE) == SlotPlan(NINE, NINE + HOUR)
    assert plan(hourly, NINE, NINE + GRACE) == SlotPlan(NINE, NINE + HOUR)


def test_of_the_slots_that_passed_the_newest_is_run() -> None:
    hourly = schedule(Recurring("0 * * * *"))

    planned = plan(hourly, NINE, NINE + 3.5 * HOUR)

    assert planned == SlotPlan(NINE + 3 * HOUR, NINE + 4 * HOUR, 3, NINE, NINE + 2 * HOUR)


def test_what_passed_is_skipped_unless_it_is_just_now() -> None:
    hourly = schedule(Recurring("0 * * * *"), Misfire.SKIP)

    late = plan(hourly, NINE, NINE + 3.5 * HOUR)
    just_now = plan(hourly, NINE, NINE + 3 * HOUR + GRACE)

    assert late == SlotPlan(None, NINE + 4 * HOUR, 4, NINE, NINE + 3 * HOUR)
    assert just_now == SlotPlan(NINE + 3 * HOUR, NINE + 4 * HOUR, 3, NINE, NINE + 2 * HOUR)


def test_what_passed_is_caught_up_with_one_after_the_other() -> None:
    hourly = schedule(Recurring("0 * * * *"), Misfire.CATCH_UP)
    now = NINE + 3.5 * HOUR

    assert plan(hourly, NINE, now) == SlotPlan(NINE, NINE + HOUR)
    assert fired(hourly, NINE, iter([now])) == [NINE + n * HOUR for n in range(4)]


def test_no_more_is_caught_up_with_than_the_newest_hundred() -> None:
    hourly = schedule(Recurring("0 * * * *"), Misfire.CATCH_UP)
    now = NINE + 149 * HOUR  # 150 have passed

    planned = plan(hourly, NINE, now)

    assert planned == SlotPlan(NINE + 50 * HOUR, NINE + 51 * HOUR, 50, NINE, NINE + 49 * HOUR)
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

    assert plan(daily, NINE, NINE + HOUR) == SlotPlan(NINE, NINE + 3 * HOUR)
    assert plan(daily, NINE, NINE + 4 * HOUR) == SlotPlan(NINE + 3 * HOUR, NINE + 27 * HOUR)


@pytest.mark.thorough
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
        assert planned == SlotPlan(None, due)
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
