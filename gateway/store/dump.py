"""Dumps the rows of one instant as text that any later Postgres reads (COPY), and loads them into an empty database."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import BinaryIO

from asyncpg.exceptions import (
    DataError,
    InsufficientPrivilegeError,
    IntegrityConstraintViolationError,
    SyntaxOrAccessError,
    UndefinedTableError,
)

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import AddressId
from gateway.store.connection.pool import Connection, Database, take_long
from gateway.store.connection.rows import row_count, statement

NOT_DUMPED = ("migrations", "leases", "member_keys", "instances", "homes")
"""Known by its number; held by who is not there; a key of one database.

Nor is what can be made again from other rows: such a table says so in its comment, which begins with `derived:`.
"""

LONGEST = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its columns in the order in which they are dumped; what Postgres computes is left out."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DatabaseSnapshot:
    """The database as it was at one instant; `tables` come in an order in which their rows can be inserted."""

    connection: Connection
    schema: int
    tables: tuple[Table, ...]
    counters: Mapping[str, int]
    """The last number of each sequence that was used: numbers are not given away twice."""

    async def copy(self, table: Table, target: BinaryIO) -> int:
        """Write the rows of one table to `target`; returns how many."""
        status = await self.connection.copy_from_table(
            table.name, columns=table.columns, schema_name="supaclaw", output=target, encoding="utf-8", timeout=LONGEST
        )
        return row_count(status)


@asynccontextmanager
async def snapshot(db: Database) -> AsyncIterator[DatabaseSnapshot]:
    """Read one instant while others keep writing; raises `OwnerMustAct` if there is no data, or not all is readable."""
    async with db.transaction() as connection:
        try:
            await connection.execute("set transaction isolation level repeatable read read only")
            await prepare_dump(connection)
            yield await _read_tables(connection)
        except UndefinedTableError as error:
            raise OwnerMustAct("The database holds nothing of SupaClaw; check database.url") from error
        except InsufficientPrivilegeError as error:
            raise OwnerMustAct(f"The database role may not read everything ({error}): connect as its owner") from error


_PLAIN = {
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "row_security": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
"""`row_security` off makes an error of what would be rows left out in silence."""


async def prepare_dump(connection: Connection) -> None:
    """Set, for this transaction, what decides how values look, what would hide rows, and what would end it early."""
    await take_long(connection)
    for name, value in _PLAIN.items():
        await connection.execute("select set_config($1, $2, true)", name, value, timeout=LONGEST)


_COUNTERS = """
select sequencename::text as name, last_value from pg_sequences
where schemaname = 'supaclaw' and last_value is not null order by 1
"""


async def _read_tables(connection: Connection) -> DatabaseSnapshot:
    schema = await connection.fetchval("select max(number) from supaclaw.migrations")
    columns = {}
    needs = {}
    for row in await connection.fetch(statement("server/dumped_tables"), list(NOT_DUMPED)):
        columns[row["name"]], needs[row["name"]] = tuple(row["columns"]), row["needs"]
        # What is read may not be altered meanwhile; a gateway's writes go on.
        await connection.execute(f'lock table supaclaw."{row["name"]}" in access share mode', timeout=LONGEST)
    # A table that refers to itself is no trouble, for COPY checks at its end.
    names = TopologicalSorter(needs).static_order()
    counters = await connection.fetch(_COUNTERS)
    return DatabaseSnapshot(
        connection,
        schema=schema,
        tables=tuple(Table(name, columns[name]) for name in names),
        counters={row["name"]: row["last_value"] for row in counters},
    )


IN_DOUBT = "restored from a backup: the previous gateway may have sent it"

_LET_GO = """
update supaclaw.tasks set status = 'pending', worker = null, lease_until = null, run_at = now(),
    attempts = greatest(0, attempts - 1), error = 'restored from a backup', updated_at = now()
  where status = 'running';
update supaclaw.tasks set instance_id = null
  where instance_id is not null and status not in ('completed', 'failed', 'cancelled');
select setval(s, nextval(s) + 1000000) from pg_get_serial_sequence('supaclaw.outbox', 'id') s;
"""
"""Runs wait to be claimed, by anyone. And the gateway before may have gone on after the backup: what it sent in that
time used the next keys of the outbox on the platforms."""


async def lacks_rows(db: Database, schema: int, *, unless: str | None) -> bool:
    """Whether the rows of an archive are yet to be loaded: they are not where the archive `unless` already was.

    Raises `OwnerMustAct` if the database is in use, which a principal shows.
    """
    async with db.connection() as connection:
        if await connection.fetchval("select to_regclass('supaclaw.meta')") is None:
            return True
        archive = await connection.fetchval("select value ->> 'archive' from supaclaw.meta where key = 'restored'")
        sql = """select not exists (select from supaclaw.principals)
                   and (select max(number) from supaclaw.migrations) <= $1"""
        fits = await connection.fetchval(sql, schema)
    if archive is not None and archive == unless:
        return False
    if not fits:
        raise OwnerMustAct("the database is not empty: name another in database.url, or drop its schema `supaclaw`")
    return True


async def load(db: Database, files: Mapping[Table, Path], counters: Mapping[str, int], archive: str) -> None:
    """Fill the empty tables in this order, all or nothing, and note what they came from."""
    async with db.transaction() as connection:
        await prepare_dump(connection)
        for table, path in files.items():
            await _copy(connection, table, path)
        for name, last in counters.items():
            await connection.execute("select setval(format('supaclaw.%I', $1::text), $2::bigint)", name, last)
        await connection.execute(_LET_GO, timeout=LONGEST)
        sql = "update supaclaw.outbox set state = 'uncertain', error = $1 where state in ('pending', 'sending')"
        await connection.execute(sql, IN_DOUBT, timeout=LONGEST)
        await connection.execute(
            "insert into supaclaw.meta (key, value) values ('restored', $1) on conflict (key) do update set value = $1",
            {"archive": archive, "told": False},
        )


async def _copy(connection: Connection, table: Table, path: Path) -> None:
    try:
        await connection.copy_to_table(
            table.name, columns=table.columns, schema_name="supaclaw", source=path, encoding="utf-8", timeout=LONGEST
        )
    except (DataError, IntegrityConstraintViolationError, SyntaxOrAccessError) as error:
        raise OwnerMustAct(f"The rows of {table.name} do not fit this database: {error}") from error


async def addresses_in_doubt(conn: Connection) -> list[AddressId]:
    """Addresses that may have been sent an answer before a restore; empty at every further call."""
    sql = """update meta set value = value || '{"told": true}'
             where key = 'restored' and value -> 'told' = 'false' returning true"""
    first = await conn.fetchval(sql)
    sql = """select distinct address_id from outbox
             where $2 and state = 'uncertain' and error = $1 and not notice order by address_id"""
    return [AddressId(row["address_id"]) for row in await conn.fetch(sql, IN_DOUBT, bool(first))]
