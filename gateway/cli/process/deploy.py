"""`supaclaw deploy` and `supaclaw test`: check that a database is ready, and that it works."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

import typer

from gateway.cli.connections.database import require_owner, with_database
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import flag, option
from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.store.connection import server
from gateway.store.connection.dsn import parse_dsn
from gateway.store.connection.pool import Database
from gateway.store.connection.server import ServerFacts
from gateway.store.memory import vectors
from gateway.store.migrate import check_server, migrate, schema_of

CONNECTIONS = 15
"""The most connections of one gateway or worker."""

Direct = Annotated[str | None, option("Direct or session address, port 5432.", "URL", "--direct")]
Pooler = Annotated[str | None, option("Address of the transaction pooler, port 6543; optional.", "URL", "--pooler")]
Upgrade = Annotated[bool, flag("Apply missing migrations.", "--migrate")]
Fix = Annotated[bool, flag("Revoke the rights of anon and authenticated in the schema supaclaw.", "--fix")]


@dataclass(frozen=True, slots=True)
class DatabaseCheck:
    """One check: what it found, or in `fix` what is wrong and what to do."""

    name: str
    found: str = ""
    fix: str = ""


def supabase(direct: Direct = None, pooler: Pooler = None, upgrade: Upgrade = False, fix: Fix = False) -> None:
    """Check step by step that a Supabase project can be the database.

    Without --direct it checks SUPACLAW_DATABASE_URL. Other users of this machine can see a command line.
    """
    url = direct or os.environ.get("SUPACLAW_DATABASE_URL")
    if not url:
        raise OwnerMustAct("set SUPACLAW_DATABASE_URL, or pass --direct, as Supabase shows it under Connect")
    if not asyncio.run(_report(url, pooler, upgrade=upgrade, fix=fix)):
        raise typer.Exit(1)


async def _report(direct: str, pooler: str | None, *, upgrade: bool, fix: bool) -> bool:
    good = True
    async for step in _checks(direct, pooler, upgrade=upgrade, fix=fix):
        echo(f"{'FAIL' if step.fix else 'ok':<5}{step.name}: {step.fix or step.found}")
        good = good and not step.fix
    return good


async def _checks(direct: str, pooler: str | None, *, upgrade: bool, fix: bool) -> AsyncIterator[DatabaseCheck]:
    try:
        if not parse_dsn(direct).direct:
            yield DatabaseCheck(
                "direct address", fix="it is a transaction pooler's; pass it as --pooler, and here that on port 5432"
            )
            return
        async with await Database.connect(direct, size=1) as database:
            await check_server(database)
            yield DatabaseCheck("direct address", "answers, and can listen")
            yield await _migrations(database, upgrade=upgrade)
            for step in await _schema_checks(database, fix=fix):
                yield step
    except SupaclawError as error:
        yield DatabaseCheck("direct address", fix=str(error))
        return
    if pooler:
        yield await _pooled(pooler)


async def _migrations(database: Database, *, upgrade: bool) -> DatabaseCheck:
    try:
        if upgrade:
            await migrate(database)
        schema = await schema_of(database)
    except SupaclawError as error:
        return DatabaseCheck("migrations", fix=str(error))
    found = f"{schema.number} of {schema.newest}"
    return DatabaseCheck("migrations", found, f"{found}; run again with --migrate" if schema.missing else "")


async def _schema_checks(database: Database, *, fix: bool) -> tuple[DatabaseCheck, ...]:
    async with database.connection() as conn:
        vector = await vectors.extension_problem(conn)
        if fix:
            await server.hide_from_the_web(conn)
        seen = await server.seen_from_the_web(conn)
        free = await server.free_connections(conn)
    hint = "out of Data API > Exposed schemas, and run this again with --fix, which revokes that"
    crowded = f"only {free} of the {CONNECTIONS} that a gateway may take are free: close others, or enlarge the project"
    return (
        DatabaseCheck("extension vector", "installed", vector),
        DatabaseCheck(
            "anon and authenticated", "see nothing", f"{'; '.join(seen)}: leave supaclaw {hint}" if seen else ""
        ),
        DatabaseCheck("connections", f"{free} free, {CONNECTIONS} needed", crowded if free < CONNECTIONS else ""),
    )


async def _pooled(url: str) -> DatabaseCheck:
    try:
        if parse_dsn(url).direct:
            return DatabaseCheck(
                "pooler", fix="it isn't a transaction pooler's: use port 6543, or add ?pool_mode=transaction"
            )
        async with await Database.connect(url, size=1) as database, database.transaction() as conn:
            await conn.fetchval("select 1")
    except SupaclawError as error:
        return DatabaseCheck("pooler", fix=str(error))
    return DatabaseCheck("pooler", "answers; workers may use it, and then poll instead of listening")


def test() -> None:
    """Check that the database works and can be written."""

    async def work(database: Database) -> ServerFacts:
        await database.read(require_owner)
        return await server.look(database)

    found = with_database(work)
    if found.read_only or found.denied:
        raise OwnerMustAct(f"the database cannot be written ({found.denied or 'read-only'}); see `supaclaw doctor`")
    echo(f"The database works: PostgreSQL {found.version}, {found.migrations} migrations, {found.round_trip_ms:.1f} ms")
