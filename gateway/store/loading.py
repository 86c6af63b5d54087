"""Rows of a dump, put into an empty database and made fit for another gateway than the one they were written by."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from asyncpg.exceptions import (
    DataError,
    IntegrityConstraintViolationError,
    SyntaxOrAccessError,
    UndefinedTableError,
)

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import AddressId
from gateway.store.dump import LONGEST, NOT_KEPT, Table, copied, quoted, speak_plainly
from gateway.store.pool import Connection, Database

IN_DOUBT = "restored from a backup: the gateway before may have sent it"

_GAP = 1_000_000
"""The gateway before may have gone on after the backup; what it sent in that time used these keys on the platforms."""


@dataclass(frozen=True, slots=True)
class Loading:
    """The one transaction that fills the database."""

    connection: Connection

    async def copy(self, table: Table, rows: AsyncIterable[bytes]) -> int:
        """Insert the rows of one table as `Snapshot.copy` wrote them; returns how many."""
        try:
            done = await self.connection.copy_to_table(
                table.name,
                schema_name="supaclaw",
                columns=table.columns,
                source=rows,
                format="text",
                encoding="utf-8",
                timeout=LONGEST,
            )
        except (DataError, IntegrityConstraintViolationError, SyntaxOrAccessError) as error:
            raise OwnerMustAct(f"The rows of {table.name} do not fit this database: {error}") from error
        return copied(done)

    async def finish(self, counters: Mapping[str, int], archive: str) -> None:
        """Go on counting where it was left, let go of what the gateway before held, and note what this came from."""
        for name, last in counters.items():
            await self.connection.execute(f"select setval('supaclaw.{quoted(name)}', $1::bigint)", last)
        await self.connection.execute(
            "select setval(s, nextval(s) + $1) from pg_get_serial_sequence('supaclaw.outbox', 'id') s", _GAP
        )
        await self._let_go()
        await self.connection.execute(
            "insert into supaclaw.meta (key, value) values ('restored', $1) on conflict (key) do update set value = $1",
            {"archive": archive, "told": False},
        )

    async def _let_go(self) -> None:
        """Runs wait to be claimed, by anyone; what may have been sent is not sent again."""
        await self.connection.execute(
            """update supaclaw.tasks set status = 'pending', worker = null, lease_until = null, run_at = now(),
                 attempts = greatest(0, attempts - 1), error = 'restored from a backup', updated_at = now()
               where status = 'running'""",
            timeout=LONGEST,
        )
        await self.connection.execute(
            """update supaclaw.tasks set instance_id = null
               where instance_id is not null and status not in ('completed', 'failed', 'cancelled')""",
            timeout=LONGEST,
        )
        await self.connection.execute(
            "update supaclaw.outbox set state = 'uncertain', error = $1 where state in ('pending', 'sending')",
            IN_DOUBT,
            timeout=LONGEST,
        )


@asynccontextmanager
async def loading(db: Database) -> AsyncIterator[Loading]:
    """Fill the empty tables, all or nothing."""
    async with db.transaction() as connection:
        await speak_plainly(connection)
        yield Loading(connection)


async def occupied(db: Database) -> str | None:
    """A table that holds rows already, if there is one."""
    async with db.connection() as connection:
        tables = await connection.fetch(
            "select tablename::text as name from pg_tables where schemaname = 'supaclaw' and not tablename = any($1)",
            list(NOT_KEPT),
        )
        for row in tables:
            if await connection.fetch(f"table supaclaw.{quoted(row['name'])} limit 1"):
                return str(row["name"])
    return None


async def schema_of(db: Database) -> int:
    """The number of the last migration applied; 0 before the first."""
    try:
        async with db.connection() as connection:
            return int(await connection.fetchval("select coalesce(max(number), 0) from supaclaw.migrations"))
    except UndefinedTableError:
        return 0


async def restored_from(db: Database) -> str | None:
    """The archive this database was loaded from, None if it was not."""
    try:
        async with db.connection() as connection:
            found = await connection.fetchval("select value ->> 'archive' from supaclaw.meta where key = 'restored'")
    except UndefinedTableError:
        return None
    return str(found) if found else None


async def addresses_in_doubt(conn: Connection) -> list[AddressId]:
    """Where an answer may or may not have been shown, the first time it is asked after a restore."""
    first = await conn.fetchval(
        """update meta set value = value || '{"told": true}'
           where key = 'restored' and value -> 'told' = 'false' returning true"""
    )
    if not first:
        return []
    rows = await conn.fetch(
        """select distinct address_id from outbox
           where state = 'uncertain' and error = $1 and not notice order by address_id""",
        IN_DOUBT,
    )
    return [AddressId(row["address_id"]) for row in rows]
