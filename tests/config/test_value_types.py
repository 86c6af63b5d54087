import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.load import parse
from gateway.config.value_types import format_duration, parse_duration, parse_hours, parse_public_url
from gateway.domain.errors import ConfigError


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


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://claw.example.org", "https://claw.example.org"),
        (" https://Claw.Example.org/ ", "https://claw.example.org"),
        ("https://claw.example.org:443", "https://claw.example.org"),
        ("https://claw.example.org:8443", "https://claw.example.org:8443"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_is_kept_as_browsers_write_an_origin(text: str, origin: str) -> None:
    assert parse_public_url(text) == origin


@pytest.mark.parametrize("text", ["http://claw.example.org", "ftp://claw.example.org", "http://localhost.example.org"])
def test_needs_https_but_on_this_machine(text: str) -> None:
    with pytest.raises(ValueError, match="https://"):
        parse_public_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://claw.example.org/page",
        "https://claw.example.org/?a=1",
        "https://claw.example.org/#a",
        "https://ada@claw.example.org",
        "https://ada:secret@claw.example.org",
    ],
)
def test_is_a_host_and_perhaps_a_port(text: str) -> None:
    with pytest.raises(ValueError, match=r"nothing before or after: https://claw\.example\.org$"):
        parse_public_url(text)


@pytest.mark.parametrize(
    "text", ["", "claw.example.org", "https://", "https://claw example", "https://*.example.org:x"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be an address|must begin with"):
        parse_public_url(text)


def test_the_environment_beats_the_file() -> None:
    file = '{"web": {"public_url": "https://a.example"}}'

    assert parse(file, {}).web.public_url == "https://a.example"
    assert parse(file, {"SUPACLAW_PUBLIC_URL": "https://b.example/"}).web.public_url == "https://b.example"


def test_a_wrong_one_is_named_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"web\.public_url: must begin with https"):
        parse("{}", {"SUPACLAW_PUBLIC_URL": "http://claw.example.org"})
