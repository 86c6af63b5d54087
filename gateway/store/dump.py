"""Every row of one instant as text that any later version of Postgres reads: COPY, a table at a time."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from graphlib import TopologicalSorter
from typing import IO

from asyncpg.exceptions import InsufficientPrivilegeError, InvalidSchemaNameError, UndefinedTableError

from gateway.domain.errors import OwnerMustAct
from gateway.store.pool import Connection, Database

NOT_KEPT = ("migrations", "leases")
"""The one is known by its number, the other would be held by who is not there."""

LONGEST = timedelta(hours=24).total_seconds()


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its columns in the order in which they are dumped; what Postgres computes is left out."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The database as it was at one instant; `tables` come in an order in which their rows can be inserted."""

    connection: Connection
    schema: int
    server: str
    tables: tuple[Table, ...]
    counters: Mapping[str, int]
    """The last number of each sequence that was used: numbers are not given away twice."""

    async def copy(self, table: Table, target: IO[bytes]) -> int:
        """Write the rows of one table to `target`; returns how many."""

        async def written(piece: bytes) -> None:
            await asyncio.to_thread(target.write, piece)

        done = await self.connection.copy_from_table(
            table.name,
            schema_name="supaclaw",
            columns=table.columns,
            output=written,
            format="text",
            encoding="utf-8",
            timeout=LONGEST,
        )
        return copied(done)


@asynccontextmanager
async def snapshot(db: Database) -> AsyncIterator[Snapshot]:
    """Look at one instant while others go on writing; raises `OwnerMustAct` if there is nothing, or not all, to see."""
    try:
        async with db.transaction() as connection:
            await connection.execute("set transaction isolation level repeatable read read only")
            await speak_plainly(connection)
            yield await _looked_at(connection)
    except (UndefinedTableError, InvalidSchemaNameError) as error:
        raise OwnerMustAct("The database holds nothing of SupaClaw; check database.url") from error
    except InsufficientPrivilegeError as error:
        raise OwnerMustAct(f"The database role may not read everything ({error}): connect as its owner") from error


async def speak_plainly(connection: Connection) -> None:
    """Set, for this transaction, what decides how values look, what would hide rows, and what would end it early."""
    for name, value in _PLAIN.items():
        await connection.execute(
            "select set_config($1, $2, true) from pg_settings where name = $1", name, value, timeout=LONGEST
        )


_PLAIN = {
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "row_security": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
}
"""`row_security` off makes an error of what would be rows left out in silence. Not every version has each of them."""


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def copied(status: str) -> int:
    """How many rows a COPY says it copied."""
    return int(status.rpartition(" ")[2])


async def _looked_at(connection: Connection) -> Snapshot:
    schema = await connection.fetchval("select max(number) from supaclaw.migrations")
    if schema is None:
        raise OwnerMustAct("The database holds nothing of SupaClaw; check database.url")
    columns = await _columns(connection)
    names = [name for name in await _in_order(connection) if name in columns]
    # What is read may not be altered meanwhile; a gateway's writes go on.
    await connection.execute(
        f"lock table {', '.join(f'supaclaw.{quoted(name)}' for name in names)} in access share mode", timeout=LONGEST
    )
    return Snapshot(
        connection,
        schema=schema,
        server=await connection.fetchval("show server_version"),
        tables=tuple(Table(name, columns[name]) for name in names),
        counters=await _counters(connection),
    )


async def _columns(connection: Connection) -> Mapping[str, tuple[str, ...]]:
    rows = await connection.fetch(
        """select c.relname::text as name, array_agg(a.attname::text order by a.attnum) as columns
           from pg_class c join pg_attribute a on a.attrelid = c.oid
           where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r'
             and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' and not c.relname = any($1::text[])
           group by c.relname""",
        list(NOT_KEPT),
    )
    return {row["name"]: tuple(row["columns"]) for row in rows}


async def _in_order(connection: Connection) -> Sequence[str]:
    """Every table after those it refers to; one that refers to itself is no trouble, for COPY checks at its end."""
    rows = await connection.fetch(
        """select c.relname::text as name,
             array(select r.relname::text from pg_constraint k join pg_class r on r.oid = k.confrelid
                   where k.conrelid = c.oid and k.contype = 'f' and k.confrelid <> k.conrelid) as needs
           from pg_class c where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r'
           order by c.relname"""
    )
    return list(TopologicalSorter({row["name"]: row["needs"] for row in rows}).static_order())


async def _counters(connection: Connection) -> Mapping[str, int]:
    rows = await connection.fetch(
        """select sequencename::text as name, last_value from pg_sequences
           where schemaname = 'supaclaw' and last_value is not null order by 1"""
    )
    return {row["name"]: row["last_value"] for row in rows}
