from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.timetable.wall import Wall
from tests.timetable.clocks import Fields, fields

DAY = timedelta(days=1)


@given(fields(), st.dates(date(1999, 1, 1), date(2101, 1, 1)))
def test_days_are_found_by_looking_at_each(each: Fields, day: date) -> None:
    wall = Wall(each.text)
    ahead = next((other for n in range(400) if each.on(other := day + n * DAY)), None)
    behind = next((other for n in range(400) if each.on(other := day - n * DAY)), None)

    found, last = wall.first_day(day), wall.last_day(day)

    assert found == ahead or (ahead is None and (found is None or each.on(found)))
    assert last == behind or (behind is None and (last is None or each.on(last)))


@given(fields(), st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)))
def test_what_comes_next_is_the_same_whatever_was_asked_before(each: Fields, moment: datetime) -> None:
    used = Wall(each.text)
    for n in (5, -40, 0):
        asked = moment + n * DAY
        assert used.after(asked) == Wall(each.text).after(asked)
        assert used.until(asked) == Wall(each.text).until(asked)


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
    assert Wall(text).first_day(date(2026, 11, 2)) == day
