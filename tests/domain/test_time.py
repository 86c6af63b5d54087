import re
from datetime import UTC, datetime, timedelta

import pytest

from gateway.domain.time import is_zone, moment, zone


def test_a_zone_is_found_by_its_name() -> None:
    berlin = zone("Europe/Berlin")

    assert berlin.key == "Europe/Berlin"
    assert datetime(2026, 7, 1, tzinfo=UTC).astimezone(berlin).utcoffset() == timedelta(hours=2)
    assert is_zone("UTC")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Berlin", "did you mean Europe/Berlin?"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Eurpoe/Berlin", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        ("Europe/Berlin\n", "did you mean Europe/Berlin?"),
        ("Mitteleuropa", 'write one such as "Europe/Berlin" or "UTC"'),
        ("utc", "did you mean UTC?"),
        ("CEST", 'write one such as "Europe/Berlin" or "UTC"'),  # near EST, and hours away
        ("GMT+2", 'write one such as "Europe/Berlin" or "UTC"'),  # Etc/GMT+2 is two hours behind
        ("UTC+2", 'write one such as "Europe/Berlin" or "UTC"'),
        ("", 'write one such as "Europe/Berlin" or "UTC"'),
        ("x" * 10_000, 'write one such as "Europe/Berlin" or "UTC"'),
    ],
)
def test_a_name_that_is_none_is_refused_with_the_nearest(name: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"is not an IANA time zone; {told}")) as refused:
        zone(name)

    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 150
    assert not is_zone(name)


@pytest.mark.parametrize(
    "name",
    [
        "localtime",
        "posixrules",
        "right/Europe/Berlin",
        "Factory",
        "../passwd",
        "/etc/passwd",
        "America",
        "a\0",
        "\ud800",
    ],
)
def test_files_that_lie_beside_the_zones_are_none(name: str) -> None:
    with pytest.raises(ValueError, match="is not an IANA time zone"):
        zone(name)


@pytest.mark.parametrize("day", ["2026-03-01", "20260301", "2026-W09-7"])
def test_a_date_is_a_whole_day_however_it_is_written(day: str) -> None:
    assert moment(day, "Europe/Berlin").isoformat() == "2026-03-01T00:00:00+01:00"
    assert moment(day, "Europe/Berlin", end=True).isoformat() == "2026-03-02T00:00:00+01:00"
    assert moment(day, None).tzinfo is UTC


@pytest.mark.parametrize("time", ["2026-03-01T09:30", "20260301T0930", "2026-03-01T09:30+01:00"])
def test_a_time_is_that_time_also_as_an_end(time: str) -> None:
    assert moment(time, "Europe/Berlin", end=True).isoformat() == "2026-03-01T09:30:00+01:00"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "1772323200", "2026-02-30"])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        moment(text, None)
