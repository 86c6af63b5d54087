from datetime import time

import pytest

from gateway.config.hours import parse_hours


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


@pytest.mark.parametrize("text", ["", "8-22", "08:00-24:00", "08:00-08:00", "08:00", "08:00 - 22:00"])
def test_refuses_what_is_no_window(text: str) -> None:
    with pytest.raises(ValueError, match="two different times"):
        parse_hours(text)
