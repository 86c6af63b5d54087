import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
import time_machine

from gateway.config.hours import parse_hours

TOKYO = ZoneInfo("Asia/Tokyo")


def test_a_day_window_includes_its_start_and_not_its_end() -> None:
    hours = parse_hours("08:00-22:00")

    assert time(8) in hours
    assert time(21, 59) in hours
    assert time(22) not in hours
    assert time(3) not in hours


def test_a_window_may_span_midnight() -> None:
    hours = parse_hours("22:00-06:30")

    assert time(23) in hours
    assert time(6, 29) in hours
    assert time(6, 30) not in hours
    assert time(12) not in hours


def test_is_written_as_it_is_read() -> None:
    assert str(parse_hours(" 08:00-22:30 ")) == "08:00-22:30"


def test_a_window_with_a_zone_is_open_by_the_clocks_there() -> None:
    hours = parse_hours("08:00-22:00 Europe/Berlin")

    assert hours.active(datetime(2026, 11, 21, 7, 0, tzinfo=UTC), TOKYO)
    assert not hours.active(datetime(2026, 11, 21, 6, 59, tzinfo=UTC), TOKYO)
    assert hours.active(datetime(2026, 7, 1, 6, 0, tzinfo=UTC), None)


def test_a_window_without_a_zone_is_that_of_its_user() -> None:
    hours = parse_hours("08:00-22:00")

    assert hours.active(datetime(2026, 11, 20, 23, 0, tzinfo=UTC), TOKYO)
    assert not hours.active(datetime(2026, 11, 20, 22, 59, tzinfo=UTC), TOKYO)


def test_while_no_zone_is_known_the_machine_has_one() -> None:
    hours = parse_hours("08:00-22:00")
    with time_machine.travel(datetime(2026, 11, 21, tzinfo=TOKYO)):  # which sets the machine's zone too
        assert hours.active(datetime(2026, 11, 20, 23, 0, tzinfo=UTC), None)
        assert not hours.active(datetime(2026, 11, 20, 22, 59, tzinfo=UTC), None)


@pytest.mark.parametrize(("day", "minutes"), [(datetime(2027, 10, 31), 90 + 45), (datetime(2027, 3, 28), 45)])
def test_where_clocks_change_it_is_open_whenever_they_show_its_times(day: datetime, minutes: int) -> None:
    hours = parse_hours("01:15-02:45 Europe/Berlin")
    moments = [day.replace(tzinfo=UTC) + timedelta(minutes=n) for n in range(-120, 12 * 60)]

    assert sum(hours.active(moment, None) for moment in moments) == minutes


def test_a_zone_is_written_as_it_is_read() -> None:
    assert str(parse_hours("22:00-06:30  Europe/Berlin")) == "22:00-06:30 Europe/Berlin"
    assert parse_hours(str(parse_hours("22:00-06:30 Europe/Berlin"))) == parse_hours("22:00-06:30 Europe/Berlin")


def test_a_zone_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("did you mean Europe/Berlin?")):
        parse_hours("08:00-22:00 Berlin")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8-22",
        "08:00-24:00",
        "08:00-08:00",
        "08:00-08:00 Europe/Berlin",
        "08:00",
        "08:00 - 22:00",
        "08:00-22:00Europe/Berlin",
        "08:00-22:00 New York",
    ],
)
def test_refuses_what_is_no_window(text: str) -> None:
    with pytest.raises(ValueError, match="two different times"):
        parse_hours(text)
