"""Rows of a dump, put into an empty database and made fit for another gateway than the one they were written by."""

from collections.abc import Mapping
from pathlib import Path

from asyncpg.exceptions import DataError, IntegrityConstraintViolationError, SyntaxOrAccessError

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import AddressId
from gateway.store.connection.pool import Connection, Database
from gateway.store.dump import LONGEST, Table, speak_plainly

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

    Raises `OwnerMustAct` if there are others: whoever has been here has left a principal.
    """
    async with db.connection() as connection:
        if await connection.fetchval("select to_regclass('supaclaw.meta')") is None:
            return True
        archive = await connection.fetchval("select value ->> 'archive' from supaclaw.meta where key = 'restored'")
        fits = await connection.fetchval(
            """select not exists (select from supaclaw.principals)
                 and (select max(number) from supaclaw.migrations) <= $1""",
            schema,
        )
    if archive is not None and archive == unless:
        return False
    if not fits:
        raise OwnerMustAct("the database is not empty: name another in database.url, or drop its schema `supaclaw`")
    return True


async def load(db: Database, files: Mapping[Table, Path], counters: Mapping[str, int], archive: str) -> None:
    """Fill the empty tables in this order, all or nothing, and note what they came from."""
    async with db.transaction() as connection:
        await speak_plainly(connection)
        for table, path in files.items():
            await _copy(connection, table, path)
        for name, last in counters.items():
            await connection.execute("select setval(format('supaclaw.%I', $1::text), $2::bigint)", name, last)
        await connection.execute(_LET_GO, timeout=LONGEST)
        await connection.execute(
            "update supaclaw.outbox set state = 'uncertain', error = $1 where state in ('pending', 'sending')",
            IN_DOUBT,
            timeout=LONGEST,
        )
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
    """Where an answer may or may not have been shown, the first time it is asked after a restore."""
    first = await conn.fetchval(
        """update meta set value = value || '{"told": true}'
           where key = 'restored' and value -> 'told' = 'false' returning true"""
    )
    rows = await conn.fetch(
        """select distinct address_id from outbox
           where $2 and state = 'uncertain' and error = $1 and not notice order by address_id""",
        IN_DOUBT,
        bool(first),
    )
    return [AddressId(row["address_id"]) for row in rows]
