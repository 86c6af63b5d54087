from dataclasses import dataclass

import pytest

from gateway.domain.principals import Label
from gateway.domain.work.tasks import Status
from gateway.store.connection.pool import Database
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, read_row, row_count


@dataclass(frozen=True, slots=True)
class Line:
    status: Status
    label: Label
    names: tuple[str, ...]
    note: str | None


LINES = (
    "select 'running' as status, 2 as label, array['a', 'b'] as names, null::text as note from generate_series(1, $1)"
)


async def test_columns_become_what_the_fields_are(database: Database) -> None:
    async with database.connection() as conn:
        line = await fetch_one(conn, Line, LINES, 1)
    assert line == Line(Status.RUNNING, Label.UNTRUSTED, ("a", "b"), None)
    assert (type(line.status), type(line.label)) == (Status, Label)


async def test_all_rows_the_first_or_none(database: Database) -> None:
    async with database.connection() as conn:
        assert len(await fetch_all(conn, Line, LINES, 3)) == 3
        assert await fetch_all(conn, Line, LINES, 0) == []
        assert await fetch_first(conn, Line, LINES, 0) is None
        with pytest.raises(AssertionError):
            await fetch_one(conn, Line, LINES, 0)


@dataclass(frozen=True, slots=True)
class Part:
    name: str


@dataclass(frozen=True, slots=True)
class Whole:
    state: Status | None
    parts: tuple[Part, ...]
    labels: frozenset[Label]
    counts: dict[Status, int]
    note: str = "none"


def test_what_is_held_is_read_at_any_depth_and_other_columns_are_left_out() -> None:
    row = {"state": "failed", "parts": [{"name": "a"}], "labels": [0, 2], "counts": {"running": 3}, "other": 1}

    whole = Whole(Status.FAILED, (Part("a"),), frozenset({Label.OWNER, Label.UNTRUSTED}), {Status.RUNNING: 3})

    assert read_row(Whole, row) == whole
    assert read_row(Whole, {**row, "state": None}).state is None


def test_a_status_tells_how_many_rows() -> None:
    assert [row_count("UPDATE 3"), row_count("INSERT 0 12")] == [3, 12]
