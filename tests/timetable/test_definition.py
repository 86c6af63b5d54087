from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypedDict, Unpack

import pytest

from gateway.domain.work.schedules import Definition, Misfire, Once, Recurring
from gateway.timetable.definition import LONGEST_NAME, MAX_PROMPT, Changes, Kind, Refused, amend, define

NOW = datetime(2026, 11, 21, 10, 3, tzinfo=UTC)
DAILY = Definition("tea", "Make tea.", Recurring("0 16 * * *"), "Europe/London", Misfire.SKIP, True)
ONCE = Definition("call", "Call Bob.", Once(datetime(2026, 11, 22, 9, tzinfo=UTC)), "Europe/London")
BACKLOG = Definition("sort", "Sort photos.", None)


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


def defined(**asked: Unpack[Asked]) -> Definition:
    plain = Asked(
        name="tea", prompt="Make tea.", schedule_type=None, run_at=None, cron_expr=None, timezone=None, zone=None
    )
    return define(**{**plain, **asked}, now=NOW)


def at(run_at: str, zone: str = "Europe/Berlin") -> datetime:
    definition = defined(schedule_type="once", run_at=run_at, zone=zone)
    assert isinstance(definition.when, Once)
    return definition.when.at


def refusal(**asked: Unpack[Asked]) -> str:
    with pytest.raises(Refused) as refused:
        defined(**asked)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_recurring_keeps_its_fields_with_one_space_between() -> None:
    definition = defined(
        schedule_type="recurring", cron_expr=" 30 8  * * 1-5 ", timezone="Europe/Berlin", misfire="catch_up", zone="UTC"
    )

    assert definition == Definition(
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


def amended(definition: Definition, **changes: Unpack[Changes]) -> Definition:
    return amend(definition, now=NOW, zone="Asia/Tokyo", **changes)


@pytest.mark.parametrize("definition", [DAILY, ONCE])
def test_what_is_not_given_stays(definition: Definition) -> None:
    assert amended(definition) == definition
    nothing = Changes(
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
    with pytest.raises(Refused, match='timezone: "Mars/Olympus" is not an IANA time zone'):
        amended(lost, run_at="2026-11-22T16:00")


def test_one_kind_becomes_the_other() -> None:
    daily = amended(ONCE, schedule_type="recurring", cron_expr="0 9 * * *")
    once = amended(DAILY, run_at="2026-11-22T16:00")

    assert (daily.when, daily.zone) == (Recurring("0 9 * * *"), "Europe/London")
    assert once.when == Once(datetime(2026, 11, 22, 16, tzinfo=UTC))
    with pytest.raises(Refused, match="recurring needs cron_expr"):
        amended(ONCE, schedule_type="recurring")


def test_another_zone_alone_leaves_a_single_time_the_instant_it_is() -> None:
    moved = amended(ONCE, timezone="Asia/Tokyo")

    assert (moved.when, moved.zone) == (ONCE.when, "Asia/Tokyo")


def test_a_single_time_that_is_over_does_not_hinder_other_changes() -> None:
    over = amend(ONCE, now=NOW + timedelta(days=30), zone=None, prompt="Call Eve.", schedule_type="once")

    assert (over.when, over.prompt) == (ONCE.when, "Call Eve.")


def test_what_is_in_the_backlog_stays_there_without_a_time() -> None:
    assert amended(BACKLOG, name="sort again").when is None
    with pytest.raises(Refused, match="once needs run_at"):
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
    with pytest.raises(Refused, match="is in the past: it is"):
        due(NOW - timedelta(minutes=30))


@pytest.mark.parametrize(
    "said", ["in minutes", "in 20", "20 minutes", "in -5 minutes", "in 2 months", "in 99999 minutes"]
)
def test_what_is_no_delay_is_refused(said: str) -> None:
    assert "or such as in 20 minutes" in refusal(run_at=said)


def test_a_delay_has_an_end() -> None:
    assert "more than 10 years ahead" in refusal(run_at="in 9999 weeks")
