"""Checks of the database: it answers, and its schema and clock fit. They start and change nothing."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from gateway.app.checks.context import CheckContext, fail, ok, refused, warn
from gateway.config.channels import enabled_channels
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.domain.health import Finding
from gateway.domain.people.access import owner_problems
from gateway.flow.model_refusals import cut_prompts
from gateway.store.connection.pool import ALLOW_MEMBER_LOGIN, NO_MEMBER_LOGIN, Database
from gateway.store.connection.server import ServerFacts, look
from gateway.store.delivery import outbox
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.memory import vectors
from gateway.store.migrate import check_server, read_migrations, schema_of
from gateway.store.people import principals
from gateway.store.people.principals import PrincipalRow
from gateway.store.work import retention
from gateway.store.work.retention import TableSize

_FAR_MS = 50.0
_SKEW_SECONDS = 5.0
_SUPABASE_FREE_MB = 500


def check_database(context: CheckContext) -> Iterator[Finding]:
    """Check the connection, the server, the migrations, the clock of a remote server, and which gateway owns it."""
    data, url = context.environment.data, context.config.database.url
    embedded, password = EmbeddedPostgres(data), data / "keys" / "postgres.supaclaw"
    if url is None and not embedded.is_running:
        yield ok("the embedded Postgres is not running; `supaclaw up` starts it")
        if not (data / "postgres").exists():
            yield from _judge_owner(context.config, None)
        return
    if url is None and not password.exists():
        text = f"the embedded Postgres runs, but {password} is gone"
        yield fail(text, "put it back from a backup; without it nobody can log in")
        return
    try:
        yield from asyncio.run(_check_server(context.config, embedded))
    except SupaclawError as error:
        log = data / "logs" / "postgres.log"
        fix = "check database.url, and that this server runs" if url else f"see {log}; `supaclaw down`, `supaclaw up`"
        if url and ".supabase.c" in url.get_secret_value():
            fix = "restore the project in Supabase's dashboard if it is paused; else check database.url"
        yield fail(str(error), fix)


def judge(server: ServerFacts) -> Iterator[Finding]:
    """Yield the findings about a server that this program can work with."""
    about, known = f"PostgreSQL {server.version}, answers in {server.round_trip_ms:.1f} ms", len(read_migrations())
    if server.read_only:
        yield fail(f"{about}, but is read-only", "use the address of the primary server")
    elif server.round_trip_ms > _FAR_MS:
        yield warn(about, "each turn asks it many times: choose a database nearer to this machine")
    else:
        yield ok(about)
    if server.denied:
        fix = "grant all on all tables in schema supaclaw to the role of database.url"
        yield fail(f"the role may not read and write {server.denied}", fix)
    if (size := server.supabase_bytes / 1e6) > 0.8 * _SUPABASE_FREE_MB:
        text = f"Supabase has {size:.0f} MB; a free project becomes read-only at {_SUPABASE_FREE_MB} MB"
        yield warn(text, "shorten retention.keep, set models.embedding to none, or enlarge it")
    newer = f", and {server.migrations - known} of a newer SupaClaw, on which this one works"
    migrations = f"migrations: {min(server.migrations, known)} of {known} applied{newer * (server.migrations > known)}"
    if server.migrations < known:
        yield warn(migrations, "the next start of the gateway applies the rest")
    else:
        yield ok(migrations)
    if abs(server.ahead_seconds) > _SKEW_SECONDS:
        yield warn(f"its clock differs from this machine's by {server.ahead_seconds:.0f} s", "let NTP set both clocks")


def _sizes(tables: Sequence[TableSize]) -> str:
    told = []
    for table in tables:
        grown = f", {table.grown / 2**20:+.1f} in {table.days} days" if table.days else ""
        told.append(f"{table.name} {table.bytes / 2**20:.1f} MB{grown}")
    return f"largest tables: {'; '.join(told)}"


async def _check_server(config: Config, embedded: EmbeddedPostgres) -> list[Finding]:
    """Check the server. An embedded one is running already, so starting it is only a login."""
    url = config.database.url
    dsn = url.get_secret_value() if url else f"{await embedded.start()}&member_password={embedded.member_password}"
    async with await Database.connect(dsn, size=1) as database:
        try:
            await check_server(database)
            await schema_of(database)
        except OwnerMustAct as error:
            return [refused(error)]
        findings = list(judge(server := await look(database)))
        if server.migrations < len(read_migrations()):
            return findings
        if not await database.members_log_in():
            findings.append(warn(NO_MEMBER_LOGIN, ALLOW_MEMBER_LOGIN))
        async with database.connection() as conn:
            if why := await vectors.extension_problem(conn):
                findings.append(warn(*why.split(": ", 1)))
            else:
                findings.append(ok(await vectors.state(conn)))
            findings.append(ok(_sizes(await retention.largest(conn, datetime.now(UTC).date(), 5))))
            for name, text in (await outbox.waiting(conn)).items():
                fix = "they are sent once it takes them; `supaclaw status` shows how the channel is"
                findings.append(warn(f"answers for {name}: {text}", fix))
            findings += [warn(*cut) for cut in await cut_prompts(conn, datetime.now(UTC))]
            return [*findings, *_judge_owner(config, await principals.owner(conn))]


def _judge_owner(config: Config, owner: PrincipalRow | None) -> Iterator[Finding]:
    ids = (owner.identities, owner.unconfirmed) if owner else ((), ())
    for line in owner_problems(config.owner.ids, enabled_channels(config.channels), *ids):
        yield warn(*line.split("; ", 1))
