from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from gateway.cli.terminal.output import print_json, print_rows


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    at: datetime | None
    tags: tuple[str, ...] = ()


ROWS = [Row("[b]one[/b]", datetime(2026, 1, 2, 3, 4, tzinfo=UTC), ("b", "a")), Row("two", None)]


def test_people_get_the_named_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, ("name", "at", "tags"), as_json=False)

    out = capsys.readouterr().out
    assert "[b]one[/b]" in out
    assert "2026-01-02 03:04" in out
    assert "a, b" in out


def test_money_sizes_and_other_numbers_are_told_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"cost_usd": 0.020075999999999997, "size": 2048, "importance": 0.1 + 0.2}
    print_rows([row], tuple(row), as_json=False)

    head, line = capsys.readouterr().out.split("\n")[1::2][:2]
    assert head.split() == ["cost", "size", "importance"]
    assert line.split() == ["$0.0201", "2.0", "kB", "0.3"]


def test_a_row_is_a_line_for_programs_that_read_it_through_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    wide = tuple(f"{number:036}" for number in range(20))
    print_rows([Row("wide", None, wide)], ("name", "at", "tags"), as_json=False)

    [line] = [line for line in capsys.readouterr().out.splitlines() if "wide" in line]
    assert ", ".join(wide) in line


def test_programs_get_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS[:1], ("name",), as_json=True)

    assert '"at": "2026-01-02T03:04:00+00:00"' in capsys.readouterr().out


def test_what_looks_like_a_secret_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"url": "postgres://me:hush@h/db"})

    assert "hush" not in capsys.readouterr().out
