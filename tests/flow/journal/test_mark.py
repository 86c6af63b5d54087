from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.flow.journal.mark import SLACK, read_since, write_mark

AT = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "journal" / "checked"


def test_what_was_written_a_while_before_it_is_read_too(mark: Path) -> None:
    write_mark(mark, AT)
    assert read_since(mark, AT) == AT.replace(microsecond=0) - SLACK


def test_one_that_a_crash_cut_short_leads_to_more_being_read(mark: Path) -> None:
    write_mark(mark, AT)
    whole = mark.read_text()
    for cut in range(len(whole)):
        mark.write_text(whole[:cut])
        assert read_since(mark, AT) < AT - SLACK


@pytest.mark.parametrize("text", ["", "garbage", "9" * 99])
def test_one_that_cannot_be_read_leaves_nothing_out(mark: Path, text: str) -> None:
    assert read_since(mark, AT).year == 1
    mark.parent.mkdir()
    mark.write_text(text)
    assert read_since(mark, AT).year == 1


def test_nor_does_one_ahead_of_the_clock(mark: Path) -> None:
    write_mark(mark, AT + timedelta(days=1))
    assert read_since(mark, AT).year == 1


def test_a_disk_that_refuses_it_stops_nothing(mark: Path) -> None:
    mark.parent.write_text("in the way")
    write_mark(mark, AT)
    assert read_since(mark, AT).year == 1
