"""Brings the schema up to this program's version: numbered SQL files, each in one transaction.

Programs of two versions work on one schema. A migration that a program before it can't work with says from which schema
on a program can, in a line `-- compatible_from: NUMBER`; all others only add.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import structlog
from asyncpg.exceptions import InvalidSchemaNameError, SyntaxOrAccessError, UndefinedTableError

from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.store.connection.pool import Connection, Database, take_long
from gateway.store.connection.rows import fetch_record, statement
from gateway.store.connection.server import hide_from_the_web

MIGRATIONS = Path(__file__).with_name("migrations")
_OLDEST_SERVER = 15
_LOCK = 0x5AC1A3
_LONGEST = 3600.0
_BRIEFLY = "set local lock_timeout = '2s'"
"""For a table that others use: a statement that queues behind ours waits as long as ours does."""
_COMPATIBLE_FROM = re.compile(r"^-- compatible_from: (\d+)$", re.MULTILINE)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file, `NNNN_name.sql`."""

    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """Identifies the file's content."""
        return sha256(self.sql.encode()).hexdigest()

    @property
    def compatible_from(self) -> int:
        """The schema of the oldest program that can work after it; 0: of any that could before."""
        return max((int(number) for number in _COMPATIBLE_FROM.findall(self.sql)), default=0)


@dataclass(frozen=True, slots=True)
class Schema:
    """How many migrations a database has, and which ones this program would add."""

    number: int
    missing: tuple[Migration, ...]
    compatible_from: int
    """The schema of the oldest program that can work once nothing is missing."""

    @property
    def newest(self) -> int:
        """The number that this program works with."""
        return self.number + len(self.missing)


def read_migrations(folder: Path = MIGRATIONS) -> list[Migration]:
    """The files of `folder` by number; raises `ValueError` unless they count 1, 2, 3, …"""
    paths = sorted(folder.glob("*.sql"))
    found = [Migration(int(path.stem.partition("_")[0]), path.name, path.read_text("utf-8")) for path in paths]
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations must be numbered 1, 2, 3, … without gaps: {[m.name for m in found]}")
    return found


async def schema_of(db: Database, folder: Path = MIGRATIONS) -> Schema:
    """Look at the schema and change nothing; raises `OwnerMustAct` if it is too new for this program, or foreign."""
    applied, migrations = await _applied(db), read_migrations(folder)
    if len(applied) > len(migrations) and (why := await db.read(lambda conn: outdated(conn, len(migrations)))):
        raise OwnerMustAct(why)
    for migration in migrations:
        if applied.get(migration.number, migration.sha256) != migration.sha256:
            raise OwnerMustAct(
                f"{migration.name} is not the migration this database was set up with: install a released SupaClaw"
            )
    missing = tuple(migration for migration in migrations if migration.number not in applied)
    return Schema(len(applied), missing, max((migration.compatible_from for migration in migrations), default=0))


async def check_schema(db: Database) -> None:
    """Raise `OwnerMustAct`, saying what to do, unless this program can work on the schema of the database."""
    if (schema := await schema_of(db)).missing:
        raise OwnerMustAct(
            f"The database has schema {schema.number} and this SupaClaw needs {schema.newest}: "
            "stop a gateway that still runs, then start `supaclaw up`, which upgrades it"
        )


async def outdated(conn: Connection, known: int | None = None) -> str:
    """Why a program that knows the schema `known`, else this process, has to leave the work to newer ones; "": it may.

    The newest schema may be one that it doesn't know, if the ledger says that it is compatible.
    """
    known = known_schema() if known is None else known
    sql = "select max(number) as newest, max(compatible_from) as oldest from supaclaw.migrations"
    if (row := await fetch_record(conn, sql))["oldest"] <= known:
        return ""
    which = f"schema {row['newest']}, for programs that know {row['oldest']}; this one knows {known}"
    return f"A newer SupaClaw wrote this database ({which}): update SupaClaw"


async def check_not_outdated(conn: Connection) -> None:
    """Raise `TryAgainLater` in a process that must not claim anything any more."""
    if why := await outdated(conn):
        raise TryAgainLater(why)


async def migrate(db: Database, folder: Path = MIGRATIONS, *, upto: int | None = None) -> None:
    """Apply what is missing, to the newest or `upto`; raises `OwnerMustAct` if program and database do not fit."""
    schema = await schema_of(db, folder)
    missing = schema.missing[: None if upto is None else max(0, upto - schema.number)]
    if not missing:
        return
    await check_server(db)
    for migration in missing:
        if schema.number:
            log.info("schema.upgrading", migration=migration.name, last=schema.newest)
        async with db.transaction() as connection:
            try:
                await _apply(connection, migration)
            except SyntaxOrAccessError as error:
                raise OwnerMustAct(f"The schema cannot be set up ({error}): connect as its owner") from error


async def check_server(db: Database) -> None:
    """Raise `OwnerMustAct` if the server is too old."""
    async with db.connection() as connection:
        version = await connection.fetchval("select current_setting('server_version_num')::int / 10000")
    if version < _OLDEST_SERVER:
        raise OwnerMustAct(f"The database is PostgreSQL {version}; SupaClaw needs {_OLDEST_SERVER} or newer")


@cache
def known_schema() -> int:
    """The number of the program that runs; the files may be a newer one's by now, so they are counted once."""
    return len(read_migrations())


async def _applied(db: Database) -> Mapping[int, str]:
    async with db.connection() as connection:
        try:
            rows = await connection.fetch("select number, sha256 from supaclaw.migrations")
        except (UndefinedTableError, InvalidSchemaNameError):
            return {}
    return {row["number"]: row["sha256"] for row in rows}


async def _apply(tx: Connection, migration: Migration) -> None:
    await take_long(tx)
    await tx.execute("select pg_advisory_xact_lock($1)", _LOCK, timeout=_LONGEST)
    await tx.execute(_BRIEFLY)
    await tx.execute(statement("server/ledger"))
    done = "select exists (select from supaclaw.migrations where number = $1)"
    if await tx.fetchval(done, migration.number):  # by another process, while we waited
        return
    await tx.execute(migration.sql, timeout=_LONGEST)
    await hide_from_the_web(tx)
    sql = "insert into supaclaw.migrations (number, name, sha256, compatible_from) values ($1, $2, $3, $4)"
    await tx.execute(sql, migration.number, migration.name, migration.sha256, migration.compatible_from)
