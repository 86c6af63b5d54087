"""Rows of the database as dataclasses: columns become fields, with enums and tuples as the fields are annotated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin

from asyncpg import Record

from gateway.store.connection.pool import Connection

_STATEMENTS = Path(__file__).parents[1] / "statements"
Row = TypeVar("Row")
Value = TypeVar("Value")
Reader: TypeAlias = Callable[[Record], Row]
"""Makes a row's dataclass."""


@cache
def statement(name: str) -> str:
    """A long statement, by the path of its file in `gateway/store/statements`, such as "work/usage"."""
    return (_STATEMENTS / f"{name}.sql").read_text()


async def fetch_all(conn: Connection, kind: type[Row] | Reader[Row], sql: str, *arguments: object) -> list[Row]:
    """All rows of a query."""
    read = _reader(kind)
    return [read(row) for row in await conn.fetch(sql, *arguments)]


async def fetch_first(conn: Connection, kind: type[Row] | Reader[Row], sql: str, *arguments: object) -> Row | None:
    """The first row of a query; None if it has none."""
    row = await conn.fetchrow(sql, *arguments)
    return None if row is None else _reader(kind)(row)


async def fetch_one(conn: Connection, kind: type[Row] | Reader[Row], sql: str, *arguments: object) -> Row:
    """The row of a query that always has one, such as an aggregate."""
    row = await conn.fetchrow(sql, *arguments)
    assert row is not None, f"no row: {sql}"
    return _reader(kind)(row)


async def fetch_value(conn: Connection, kind: Callable[[Any], Value], sql: str, *arguments: object) -> Value | None:
    """The first column of the first row of a query, as this type; None if there is no row, or its value is null."""
    value = await conn.fetchval(sql, *arguments)
    return None if value is None else kind(value)


async def fetch_record(conn: Connection, sql: str, *arguments: object) -> Record:
    """The row of a query that always has one, as it is."""
    return await fetch_one(conn, lambda row: row, sql, *arguments)


def columns(rows: Sequence[tuple[object, ...]], count: int) -> list[list[object]]:
    """Rows with so many values each, as the arrays that `unnest` makes rows of again."""
    return [[row[place] for row in rows] for place in range(count)]


def row_count(status: str) -> int:
    """How many rows a statement changed, from the status that `execute` returns."""
    return int(status.rpartition(" ")[2])


def read_row(kind: Callable[..., Row], row: Record | Mapping[str, Any]) -> Row:
    """A row as this dataclass; columns without a field are left out."""
    columns = _columns(kind)
    return kind(**{name: columns[name](value) for name, value in row.items() if name in columns})


def _reader(kind: type[Row] | Reader[Row]) -> Reader[Row]:
    """A class with a method `of` is read by that."""
    if not isinstance(kind, type):
        return kind
    own: Reader[Row] | None = getattr(kind, "of", None)
    return own or partial(read_row, kind)


@cache
def _columns(kind: Any) -> dict[str, Callable[[Any], object]]:
    """The fields, each with what makes its value of the column's."""
    return {field.name: _converter(field.type) for field in fields(kind)}


def _converter(hint: Any) -> Callable[[Any], object]:
    whole, (inner, *_) = get_origin(hint), get_args(hint) or (None,)
    if whole in (tuple, frozenset):
        each = _converter(inner)
        return whole if each is _same else lambda values: whole(map(each, values))
    if whole is dict and (key := _converter(inner)) is not _same:
        return lambda values: {key(name): value for name, value in values.items()}
    if whole is UnionType and (known := _converter(inner)) is not _same:
        return lambda value: None if value is None else known(value)
    if is_dataclass(hint) and isinstance(hint, type):
        return lambda value: hint(**value)
    return hint if isinstance(hint, type) and issubclass(hint, Enum) else _same


def _same(value: Any) -> object:
    return value
