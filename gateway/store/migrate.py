"""Brings the schema up to this program's version: numbered SQL files, each in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import structlog
from asyncpg.exceptions import InvalidSchemaNameError, SyntaxOrAccessError, UndefinedTableError

from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.store.connection.pool import Connection, Database, take_long
from gateway.store.connection.rows import statement
from gateway.store.connection.server import hide_from_the_web

MIGRATIONS = Path(__file__).with_name("migrations")
_OLDEST_SERVER = 15
_LOCK = 0x5AC1A3
_LONGEST = 3600.0

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


@dataclass(frozen=True, slots=True)
class Schema:
    """How many migrations a database has, and which ones this program would add."""

    number: int
    missing: tuple[Migration, ...]

    @property
    def newest(self) -> int:
        """The number that this program works with."""
        return self.number + len(self.missing)


def read_migrations(folder: Path = MIGRATIONS) -> list[Migration]:
    """The files of `folder` by number; raises `ValueError` unless they count 1, 2, 3, …"""
    found = [_read(path) for path in sorted(folder.glob("*.sql"))]
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations must be numbered 1, 2, 3, … without gaps: {[m.name for m in found]}")
    return found


async def schema_of(db: Database, folder: Path = MIGRATIONS) -> Schema:
    """Look at the schema and change nothing; raises `OwnerMustAct` if it is newer than this program, or foreign."""
    applied = await _applied(db)
    return Schema(len(applied), tuple(_missing(read_migrations(folder), applied)))


async def check_schema(db: Database) -> None:
    """Raise `OwnerMustAct`, saying what to do, unless the database has the schema of this program."""
    if (schema := await schema_of(db)).missing:
        raise OwnerMustAct(
            f"The database has schema {schema.number} and this SupaClaw needs {schema.newest}: "
            "stop a gateway that still runs, then start `supaclaw up`, which upgrades it"
        )


async def outdated(conn: Connection) -> str:
    """Why this process has to leave the work to a newer one; "" while the schema is its own."""
    newest = await conn.fetchval("select max(number) from supaclaw.migrations")
    if newest is None or newest <= (known := known_schema()):
        return ""
    return f"a newer SupaClaw took this database over (schema {newest}, this one knows {known}): update this one"


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


def _missing(migrations: Sequence[Migration], applied: Mapping[int, str]) -> list[Migration]:
    newest = max(applied, default=0)
    if newest > len(migrations):
        raise OwnerMustAct(
            f"A newer SupaClaw wrote this database (schema {newest}, this one knows {len(migrations)}): update SupaClaw"
        )
    for migration in migrations:
        if applied.get(migration.number, migration.sha256) != migration.sha256:
            raise OwnerMustAct(
                f"{migration.name} is not the migration this database was set up with: install a released SupaClaw"
            )
    return [migration for migration in migrations if migration.number not in applied]


async def _apply(tx: Connection, migration: Migration) -> None:
    await take_long(tx)
    await tx.execute("select pg_advisory_xact_lock($1)", _LOCK, timeout=_LONGEST)
    await tx.execute(statement("ledger"))
    done = "select exists (select from supaclaw.migrations where number = $1)"
    if await tx.fetchval(done, migration.number):  # by another process, while we waited
        return
    await tx.execute(migration.sql, timeout=_LONGEST)
    await hide_from_the_web(tx)
    sql = "insert into supaclaw.migrations (number, name, sha256) values ($1, $2, $3)"
    await tx.execute(sql, migration.number, migration.name, migration.sha256)


def _read(path: Path) -> Migration:
    number, _, _ = path.stem.partition("_")
    return Migration(int(number), path.name, path.read_text(encoding="utf-8"))
