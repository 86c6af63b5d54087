"""Every row of one instant as text that any later version of Postgres reads: COPY, a table at a time."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import BinaryIO

from asyncpg.exceptions import InsufficientPrivilegeError, UndefinedTableError

from gateway.domain.errors import OwnerMustAct
from gateway.store.connection.pool import Connection, Database, take_long

NOT_KEPT = ("migrations", "leases", "member_keys", "instances", "homes")
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
class Snapshot:
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
        return int(status.rpartition(" ")[2])


@asynccontextmanager
async def snapshot(db: Database) -> AsyncIterator[Snapshot]:
    """Look at one instant while others go on writing; raises `OwnerMustAct` if there is nothing, or not all, to see."""
    async with db.transaction() as connection:
        try:
            await connection.execute("set transaction isolation level repeatable read read only")
            await speak_plainly(connection)
            yield await _looked_at(connection)
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


async def speak_plainly(connection: Connection) -> None:
    """Set, for this transaction, what decides how values look, what would hide rows, and what would end it early."""
    await take_long(connection)
    for name, value in _PLAIN.items():
        await connection.execute("select set_config($1, $2, true)", name, value, timeout=LONGEST)


_TABLES = """
select c.relname::text as name,
  array(select a.attname::text from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
        order by a.attnum) as columns,
  array(select r.relname::text from pg_constraint k join pg_class r on r.oid = k.confrelid
        where k.conrelid = c.oid and k.contype = 'f' and r.oid <> c.oid) as needs
from pg_class c
where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r' and not c.relname = any($1::text[])
  and coalesce(obj_description(c.oid, 'pg_class'), '') not like 'derived:%'
order by c.relname
"""

_COUNTERS = """
select sequencename::text as name, last_value from pg_sequences
where schemaname = 'supaclaw' and last_value is not null order by 1
"""


async def _looked_at(connection: Connection) -> Snapshot:
    schema = await connection.fetchval("select max(number) from supaclaw.migrations")
    columns = {}
    needs = {}
    for row in await connection.fetch(_TABLES, list(NOT_KEPT)):
        columns[row["name"]], needs[row["name"]] = tuple(row["columns"]), row["needs"]
        # What is read may not be altered meanwhile; a gateway's writes go on.
        await connection.execute(f'lock table supaclaw."{row["name"]}" in access share mode', timeout=LONGEST)
    # A table that refers to itself is no trouble, for COPY checks at its end.
    names = TopologicalSorter(needs).static_order()
    counters = await connection.fetch(_COUNTERS)
    return Snapshot(
        connection,
        schema=schema,
        tables=tuple(Table(name, columns[name]) for name in names),
        counters={row["name"]: row["last_value"] for row in counters},
    )
