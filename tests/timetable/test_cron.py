from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.timetable.cron import Cron
from tests.timetable.clocks import ZONES, Fields, around, eventful, expected, fields

SECOND = timedelta(seconds=1)
ALL = frozenset
EVERY_MONTH = ALL(range(1, 13))
EVERY_HOUR = ALL(range(24))
TELLING = (
    Fields("*/15 * * * *", ALL(range(0, 60, 15)), EVERY_HOUR, None, EVERY_MONTH, None),
    Fields("*/20 0-4 * * *", ALL(range(0, 60, 20)), ALL(range(5)), None, EVERY_MONTH, None),
    Fields("30 2 * * *", ALL([30]), ALL([2]), None, EVERY_MONTH, None),
    Fields("0 0 * * *", ALL([0]), ALL([0]), None, EVERY_MONTH, None),
    Fields("10 */2 * * 0", ALL([10]), ALL(range(0, 24, 2)), None, EVERY_MONTH, ALL([0])),
)
EVENTS = [(zone, day) for zone in ZONES for day in eventful(zone)]


def forwards(cron: Cron, since: datetime, until: datetime) -> Iterator[datetime]:
    slot = cron.after(since - SECOND)
    while slot is not None and slot < until:
        yield slot
        slot = cron.after(slot)


def backwards(cron: Cron, since: datetime, until: datetime) -> Iterator[datetime]:
    slot = cron.last(until - SECOND)
    while slot is not None and slot >= since:
        yield slot
        slot = cron.last(slot - SECOND)


def moments(first: int, last: int) -> st.SearchStrategy[datetime]:
    return st.datetimes(datetime(first, 1, 1), datetime(last, 12, 31), timezones=st.just(UTC))


@pytest.mark.parametrize("zone", ZONES)
def test_each_slot_of_days_on_which_clocks_change_comes_exactly_once(zone: str) -> None:
    for day in eventful(zone):
        since, until = around(day)
        for each in TELLING:
            cron, slots = Cron(each.text, zone), expected(each, zone, since, until)

            assert list(forwards(cron, since, until)) == slots, (each.text, day)
            assert list(backwards(cron, since, until)) == slots[::-1], (each.text, day)
            assert list(cron.between(since - SECOND, until - SECOND)) == slots, (each.text, day)


def test_the_zones_here_have_clocks_that_change_in_both_directions_by_more_and_by_less_than_an_hour() -> None:
    changing = {zone for zone in ZONES if len(eventful(zone)) > 3}

    assert len(ZONES) >= 30
    assert {"Australia/Lord_Howe", "Antarctica/Troll", "Africa/Casablanca", "America/St_Johns"} <= changing


@given(fields(), st.sampled_from(EVENTS))
def test_any_fields_have_the_slots_that_the_clock_shows(each: Fields, event: tuple[str, date]) -> None:
    zone, (since, until) = event[0], around(event[1])
    try:
        cron = Cron(each.text, zone)
    except ValueError:
        assert not any(each.on(date(2024, 1, 1) + timedelta(days=n)) for n in range(366)), each.text
        return
    slots = expected(each, zone, since, until)

    assert list(forwards(cron, since, until)) == slots
    assert list(backwards(cron, since, until)) == slots[::-1]
    assert list(cron.between(since - SECOND, until - SECOND)) == slots


@given(fields(), st.sampled_from(ZONES), moments(1990, 2060))
def test_looking_back_finds_what_looking_ahead_found(each: Fields, zone: str, moment: datetime) -> None:
    try:
        cron = Cron(each.text, zone)
    except ValueError:
        return
    later, earlier = cron.after(moment), cron.last(moment)
    assert later is not None
    assert earlier is not None

    assert earlier <= moment < later
    assert cron.last(later) == later
    assert cron.last(later - SECOND) == earlier
    assert cron.after(earlier) == later


def test_a_time_that_the_clock_skips_comes_as_much_later() -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin")

    assert cron.after(datetime(2027, 3, 27, 12, tzinfo=UTC)) == datetime(2027, 3, 28, 1, 30, tzinfo=UTC)  # 03:30


def test_of_a_time_that_comes_twice_the_first_counts() -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin")

    assert cron.after(datetime(2027, 10, 30, 12, tzinfo=UTC)) == datetime(2027, 10, 31, 0, 30, tzinfo=UTC)
    assert cron.after(datetime(2027, 10, 31, 0, 30, tzinfo=UTC)) == datetime(2027, 11, 1, 1, 30, tzinfo=UTC)


def test_two_slots_that_meet_after_a_jump_are_one() -> None:
    cron = Cron("30 2,3 * * *", "Europe/Berlin")

    assert cron.after(datetime(2027, 3, 28, tzinfo=UTC)) == datetime(2027, 3, 28, 1, 30, tzinfo=UTC)
    assert cron.after(datetime(2027, 3, 28, 1, 30, tzinfo=UTC)) == datetime(2027, 3, 29, 0, 30, tzinfo=UTC)


def test_a_day_that_a_zone_skips_is_made_up_for_on_the_next() -> None:
    cron = Cron("0 9 30 12 *", "Pacific/Apia")

    assert cron.after(datetime(2011, 12, 29, tzinfo=UTC)) == datetime(2011, 12, 30, 19, tzinfo=UTC)  # the 31st there
    assert cron.after(datetime(2011, 12, 30, 19, tzinfo=UTC)) == datetime(2012, 12, 29, 19, tzinfo=UTC)


def test_a_leap_day_is_waited_for_also_where_there_is_none_for_eight_years() -> None:
    cron = Cron("0 0 29 2 *", "UTC")

    assert cron.after(datetime(2096, 2, 29, tzinfo=UTC)) == datetime(2104, 2, 29, tzinfo=UTC)
    assert cron.last(datetime(2104, 2, 28, tzinfo=UTC)) == datetime(2096, 2, 29, tzinfo=UTC)


def test_a_moment_within_a_minute_belongs_to_the_slot_that_began_it() -> None:
    cron = Cron("* * * * *", "Asia/Kathmandu")
    moment = datetime(2026, 11, 21, 10, 3, 20, 5, tzinfo=UTC)

    assert cron.last(moment) == datetime(2026, 11, 21, 10, 3, tzinfo=UTC)
    assert cron.after(moment) == datetime(2026, 11, 21, 10, 4, tzinfo=UTC)


@pytest.mark.parametrize("microsecond", [1, 400_000, 900_000, 999_999])
def test_fractions_of_seconds_do_not_matter_where_clocks_change(microsecond: int) -> None:
    cron, change = Cron("30 2 * * *", "Europe/Berlin"), datetime(2027, 3, 28, 1, 30, tzinfo=UTC)
    moment = change.replace(microsecond=microsecond)

    assert cron.last(moment) == change
    assert cron.after(moment - SECOND) == change
    assert cron.after(moment) == datetime(2027, 3, 29, 0, 30, tzinfo=UTC)


def test_a_moment_may_be_told_in_any_zone() -> None:
    moment = datetime(2026, 11, 21, 10, tzinfo=UTC).astimezone()

    assert Cron("5 10 * * *", "UTC").after(moment) == datetime(2026, 11, 21, 10, 5, tzinfo=UTC)


def test_where_the_calendar_ends_there_are_no_more_slots() -> None:
    for text in ("0 9 * * *", "0 9 29 2 *", "* * * * 1"):
        cron = Cron(text, "Pacific/Auckland")

        assert cron.after(datetime.max.replace(tzinfo=UTC)) is None
        assert cron.last(datetime.min.replace(tzinfo=UTC)) is None


def test_there_is_no_leap_day_after_the_last_nor_before_the_first() -> None:
    cron = Cron("0 9 29 2 *", "UTC")

    assert cron.after(datetime(9997, 1, 1, tzinfo=UTC)) is None
    assert cron.last(datetime(3, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30-31 FEB *"])
def test_what_never_fires_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="never runs: those months have no such day"):
        Cron(text, "UTC")


def test_a_zone_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"did you mean Europe/Berlin\?"):
        Cron("0 9 * * *", "Berlin")
