import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.timetable.cron import Cron, Days, check_fields
from tests.timetable.clocks import ZONES, Fields, around, eventful, expected, fields

MONDAY = date(2001, 1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "*/5 0-23/2 1,15 JAN-mar 1-7/2",
        "0 22-6 * * FRI-SUN",
        "5/15 0 1 1 7",
        "00 09 01 12 SUN",
    ],
)
def test_takes_numbers_names_lists_ranges_and_steps(text: str) -> None:
    assert check_fields(text) == text


def test_is_kept_with_one_space_between() -> None:
    assert check_fields("  30 8\t*  * 1-5\n") == "30 8 * * 1-5"


@pytest.mark.parametrize(
    ("text", "fields", "days"),
    [
        ("@daily", "0 0 * * *", lambda _: True),
        ("@Weekly", "0 0 * * 0", lambda day: day.weekday() == 6),
        ("0 0 ? * MON", "0 0 * * MON", lambda day: day.weekday() == 0),
        ("0 0 L * *", "0 0 L * *", lambda day: (day + timedelta(days=1)).day == 1),
        ("0 0 15,l * *", "0 0 15,L * *", lambda day: day.day == 15 or (day + timedelta(days=1)).day == 1),
        ("0 0 * * 1#1", "0 0 * * 1#1", lambda day: day.weekday() == 0 and day.day <= 7),
        ("0 0 * * mon#2,3#5", "0 0 * * mon#2,3#5", lambda day: (day.weekday(), (day.day - 1) // 7) in {(0, 1), (2, 4)}),
        ("0 0 * * friL", "0 0 * * L5", lambda day: day.weekday() == 4 and (day + timedelta(days=7)).month != day.month),
        ("0 0 * * 5L", "0 0 * * L5", lambda day: day.weekday() == 4 and (day + timedelta(days=7)).month != day.month),
        ("0 0 * * 1%2", "0 0 * * 1%2", lambda day: day.weekday() == 0 and (day - MONDAY).days % 14 == 0),
        (
            "0 0 * * 1,4%3+1",
            "0 0 * * 1,4%3+1",
            lambda day: day.weekday() in {0, 3} and (day - MONDAY).days // 7 % 3 == 1,
        ),
    ],
)
def test_days_beyond_crontab_are_found_forward_and_backward(
    text: str, fields: str, days: Callable[[date], bool]
) -> None:
    cron = Cron(text, "UTC")
    assert cron.fields == fields
    start, end = datetime(2025, 12, 31, 12, tzinfo=UTC), datetime(2028, 3, 1, 12, tzinfo=UTC)
    wanted = [day for day in (start + timedelta(days=n) for n in range(1, (end - start).days + 1)) if days(day.date())]
    wanted = [day.replace(hour=0) for day in wanted]
    found, at = [], start
    while (at := cron.after(at)) and at < end:
        found.append(at)
    assert found == wanted
    assert list(cron.between(start, end)) == wanted
    back, at = [], end
    while (at := cron.last(at)) and at > start:
        back.append(at)
        at -= timedelta(seconds=1)
    assert back == wanted[::-1]


@pytest.mark.parametrize("text", ["0 9 * * 1 2027", "CRON_TZ=Asia/Tokyo 0 9 * * *", "cron(0 9 * * ? *)"])
def test_no_wrong_fields_are_proposed(text: str) -> None:
    with pytest.raises(ValueError, match=r"these are 6$"):
        check_fields(text)


@pytest.mark.parametrize(
    "text", ["", "@reboot", "30 8 * *", "0 30 8 * * *", "0 0 0 1 1 ? 2027", "1," * 200 + "1 * * * *"]
)
def test_anything_but_five_fields_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^needs exactly 5 fields, .*\(no seconds\), or @daily and the like, such as"):
        check_fields(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("60 8 * * *", 'minute "60" is out of range: use * or 0-59, with lists (,), ranges (-) and steps (/)'),
        ("0 24 * * *", 'hour "24" is out of range: use * or 0-23, with lists (,), ranges (-) and steps (/)'),
        ("0 8 0 * *", 'day of month "0" is out of range: use * or 1-31, with lists (,), ranges (-) and steps (/)'),
        ("0 8 * 1-13 *", 'month "13" is out of range: use * or 1-12 or names such as APR, with lists (,), ranges (-)'),
        ("0 8 * * 8", 'day of week "8" is out of range: use * or 0-7 or names such as FRI, with lists (,), ranges'),
        ("0 8 * * JAN", 'day of week "JAN" is out of range'),
        ("0 MON * * *", 'hour "MON" is out of range'),
        ("0 8 L-3 * *", 'day of month "L-3" is not understood: take more days, such as "1-3" or "28-31"'),
        ("0 8 1W * *", "let the prompt say on which of them"),
        ("0 0 8 * * 1", 'without seconds it is "0 8 * * 1"'),
        ("0 8 ? * 2#1", "beside ?, some count from 1, Sunday; write names, such as MON#1"),
        ("0 8 ? * 6L", 'day of week "6L": beside ?'),
        ("0 8 * * L", 'day of week "L" is not understood'),
        ("0 8 * * 1#1,2", "# and L stand alone"),
        ("0 8 1 * 1%2", 'needs "*" as the day of month'),
        ("0 8 15W * *", 'day of month "15W" is not understood'),
        ("0 8 * * 1#6", 'day of week "1#6" is not understood'),
        ("H 8 * * *", 'minute "H" is not understood'),
        ("R(0-5) 8 * * *", 'minute "R(0-5)" is not understood'),
        ("-5 8 * * *", 'minute "-5" is not understood'),
        ("1,,2 8 * * *", 'minute "" is not understood'),
        ("٣ 8 * * *", 'minute "٣" is not understood'),
        ("*-5 8 * * *", 'minute "*-5" is not understood'),
        ("0 9-9 * * *", 'hour "9-9" is not a range: write "9"'),
        ("*/0 * * * *", 'minute "*/0": a step must be 1-59'),
        ("*/90 * * * *", 'minute "*/90": a step must be 1-59, and restarts at 0 each time'),
        ("0 22-6/2 * * *", 'hour "22-6/2" wraps around: write "22-23/2" and the rest separately'),
    ],
)
def test_what_is_wrong_is_told_with_what_would_be_right(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as refused:
        check_fields(text)

    assert "\n" not in str(refused.value)


DAY = timedelta(days=1)


@given(fields(), st.dates(date(1999, 1, 1), date(2101, 1, 1)))
def test_days_are_found_by_looking_at_each(each: Fields, day: date) -> None:
    days = Days(each.text)
    ahead = next((other for n in range(400) if each.on(other := day + n * DAY)), None)
    behind = next((other for n in range(400) if each.on(other := day - n * DAY)), None)

    found, last = days.nearest(day, DAY), days.nearest(day, -DAY)

    assert found == ahead or (ahead is None and (found is None or each.on(found)))
    assert last == behind or (behind is None and (last is None or each.on(last)))


@given(fields(), st.dates(date(2020, 1, 1), date(2030, 1, 1)))
def test_the_next_day_is_the_same_whatever_was_asked_before(each: Fields, day: date) -> None:
    used = Days(each.text)
    for n in (5, -40, 0):
        asked = day + n * DAY
        assert used.nearest(asked, DAY) == Days(each.text).nearest(asked, DAY)
        assert used.nearest(asked, -DAY) == Days(each.text).nearest(asked, -DAY)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("0 0 13 * FRI", date(2026, 11, 6)),  # both days are given: either
        ("0 0 13 * 5-7", date(2026, 11, 6)),
        ("0 0 */13 * FRI", date(2026, 11, 27)),  # a star does not count as given: both
        ("0 0 13 * */5", date(2026, 11, 13)),
        ("0 0 * * 7", date(2026, 11, 8)),
        ("0 0 * * SUN", date(2026, 11, 8)),
        ("0 0 * FEB *", date(2027, 2, 1)),
        ("0 0 31 * *", date(2026, 12, 31)),
    ],
)
def test_the_two_day_fields_are_those_of_classic_cron(text: str, day: date) -> None:
    assert Days(text).nearest(date(2026, 11, 2), DAY) == day


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


@pytest.mark.thorough
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
