"""Rows of the database as dataclasses: columns become fields, with enums and tuples as the fields are annotated."""

from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_origin

from asyncpg import Record

from gateway.store.connection.pool import Connection

Row = TypeVar("Row")
Value = TypeVar("Value")
Reader: TypeAlias = Callable[[Record], Row]
"""Makes a row's dataclass."""


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


def row_count(status: str) -> int:
    """How many rows a statement changed, from the status that `execute` returns."""
    return int(status.rpartition(" ")[2])


def _reader(kind: type[Row] | Reader[Row]) -> Reader[Row]:
    """A class with a method `of` is read by that."""
    if not isinstance(kind, type):
        return kind
    own: Reader[Row] | None = getattr(kind, "of", None)
    special = _special(kind)
    return own or (lambda row: kind(**(_converted(row, special) if special else row)))


@cache
def _special(kind: Any) -> dict[str, Callable[[Any], object]]:
    """The fields whose columns have another type than they."""
    hints = {field.name: field.type for field in fields(kind)}
    enums = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Enum)}
    return enums | {name: tuple for name, hint in hints.items() if get_origin(hint) is tuple}


def _converted(row: Record, special: dict[str, Callable[[Any], object]]) -> dict[str, Any]:
    return {name: special[name](value) if name in special else value for name, value in row.items()}
