from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.duration import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86_400), ("1h30m", 5400), (" 5m ", 300)]
)
def test_reads_what_people_write(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "30", "m", "0s", "-5m", "30m1h", "1.5h", "PT30M", "30 m", "5m\n5m"])
def test_refuses_anything_else_and_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match='such as "90s", "30m" or "1h30m"'):
        parse_duration(text)


@given(st.integers(min_value=1, max_value=999_999 * 86_400))
def test_what_is_written_is_read_back(seconds: int) -> None:
    duration = timedelta(seconds=seconds)

    assert parse_duration(format_duration(duration)) == duration
