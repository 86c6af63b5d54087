"""The database: it answers, it fits this program, its clock is ours. Nothing is started or changed."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.store.migrate import read_migrations
from gateway.store.pool import Database
from gateway.store.postgres import EmbeddedPostgres
from gateway.store.server import OLDEST, Server, look

_WITHIN_SECONDS = 20.0
_FAR_MS = 50.0
_SKEW = timedelta(seconds=5)


def check_database(patient: Patient) -> Iterator[Finding]:
    """Connection, server, rights, migrations, and the clock of a server elsewhere."""
    url = patient.config.database.url
    embedded = EmbeddedPostgres(patient.environment.data)
    if url is None and not embedded.is_running:
        yield Finding(Level.OK, "database", "the embedded Postgres is not running; `supaclaw up` starts it")
        return
    password = patient.environment.data / "keys" / "postgres.supaclaw"
    if url is None and not password.exists():
        text = f"the embedded Postgres runs, but {password} is gone"
        yield Finding(Level.FAIL, "database", text, "put it back from a backup; without it nobody can log in")
        return
    try:
        server = asyncio.run(_reached(url.get_secret_value() if url else None, embedded))
    except SupaclawError as error:
        log = patient.environment.data / "logs" / "postgres.log"
        fix = "check database.url, and that this server runs" if url else f"see {log}; `supaclaw down`, `supaclaw up`"
        yield Finding(Level.FAIL, "database", str(error), fix)
        return
    yield from judge(server, "embedded" if url is None else "external")


def judge(server: Server, kind: str) -> Iterator[Finding]:
    """What is to be said about a server that answers."""
    yield from _server(server, kind)
    yield from _migrations(server)
    if kind == "external" and abs(server.ahead) > _SKEW:
        way = "ahead of" if server.ahead > timedelta(0) else "behind"
        text = f"the database's clock is {abs(server.ahead).total_seconds():.0f} s {way} this machine's"
        yield Finding(Level.WARN, "clock", text, "let NTP set both clocks")


def _server(server: Server, kind: str) -> Iterator[Finding]:
    about = f"{kind} PostgreSQL {server.version}, answers in {server.round_trip_ms:.1f} ms"
    if server.major < OLDEST:
        yield Finding(Level.FAIL, "database", f"{about}: too old", f"use PostgreSQL {OLDEST} or newer")
    elif server.read_only:
        yield Finding(Level.FAIL, "database", f"{about}, but is read-only", "use the address of the primary server")
    elif not server.pgvector:
        yield Finding(Level.FAIL, "database", f"{about}, but has no pgvector", "install its extension `vector` there")
    elif not server.may_write:
        text = f"{about}, but the schema belongs to {server.owner or 'nobody we may create it as'}, not {server.role}"
        yield Finding(Level.FAIL, "database", text, "connect as the schema's owner")
    elif server.round_trip_ms > _FAR_MS:
        fix = "each turn asks the database many times: choose one nearer to this machine"
        yield Finding(Level.WARN, "database", about, fix)
    else:
        yield Finding(Level.OK, "database", f"{about}, pgvector {server.pgvector}")


def _migrations(server: Server) -> Iterator[Finding]:
    known = {migration.number: migration.sha256 for migration in read_migrations()}
    newest, applied = max(server.applied, default=0), len(server.applied)
    changed = [number for number, sha in server.applied.items() if known.get(number, sha) != sha]
    if newest > len(known):
        text = f"a newer SupaClaw wrote this database (schema {newest}, this one knows {len(known)})"
        yield Finding(Level.FAIL, "migrations", text, "update SupaClaw")
    elif changed:
        text = f"migration {changed[0]} is not the one this database was set up with"
        yield Finding(Level.FAIL, "migrations", text, "install a released SupaClaw")
    elif not server.applied:
        yield Finding(Level.OK, "migrations", "none applied yet; `supaclaw up` sets the schema up")
    elif applied < len(known):
        fix = "the next start of the gateway applies the rest; a backup before it does no harm"
        yield Finding(Level.WARN, "migrations", f"{applied} of {len(known)} applied", fix)
    else:
        yield Finding(Level.OK, "migrations", f"{applied} of {len(known)} applied")


async def _reached(url: str | None, embedded: EmbeddedPostgres) -> Server:
    """The embedded server runs already, so that starting it is only a login."""
    try:
        async with asyncio.timeout(_WITHIN_SECONDS):
            async with await Database.connect(url or await embedded.start(), size=1) as database:
                return await look(database)
    except TimeoutError as error:
        raise TryAgainLater(f"no answer within {_WITHIN_SECONDS:.0f} s") from error
