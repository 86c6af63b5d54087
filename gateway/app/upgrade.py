"""Upgrades: the schema of a database in use is brought up to this program's, with a way back."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from gateway.app.archive.backup import back_up
from gateway.app.archive.manifest import KEYS, PRINCIPALS
from gateway.background.health import EVERY_SECONDS, GATEWAY, LEASE_SECONDS, being_the_gateway
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.domain.ids import InstanceId
from gateway.store import leases, principals
from gateway.store.migrate import Schema, migrate, schema_of
from gateway.store.pool import Database
from gateway.store.server import size_of_tables

BACKUPS = "backups"
KEPT = 2
FIRST_SECONDS, NEXT_SECONDS = 1.0, 10.0
_NAME = "upgrade-{}-to-{}.tar.gz"

log = structlog.get_logger("gateway")


def _free(place: Path) -> int:
    return shutil.disk_usage(place).free


@asynccontextmanager
async def taken_over(
    environment: Environment, config: Config, database: Database, instance: InstanceId
) -> AsyncIterator[None]:
    """Be the gateway of this database, which then has this program's schema; raises `OwnerMustAct` if it cannot be.

    The lease comes before the first migration, so that no schema changes beneath a gateway.
    """
    if not (await schema_of(database)).number:
        await migrate(database)
    async with being_the_gateway(database, instance):
        if (schema := await schema_of(database)).missing:
            async with _kept(database, instance):
                await upgrade(environment, config, database, instance, schema)
        yield


async def upgrade(
    environment: Environment,
    config: Config,
    database: Database,
    instance: InstanceId,
    schema: Schema,
    free: Callable[[Path], int] = _free,
) -> None:
    """Back up what is there, then migrate; the caller holds the lease. `OwnerMustAct`: nothing has been changed."""
    async with database.connection() as conn:
        if await leases.work_elsewhere(conn, instance):
            raise OwnerMustAct(
                "a worker is at work on this database; stop it first, or wait 30 seconds if it has just died"
            )
        used = await principals.owner(conn) is not None
    if used:
        await _save(environment, config, database, schema, free)
    async with _progress("migrating"):
        await migrate(database, begun=lambda each: log.info("upgrade.migrating", to=each.name, last=schema.newest))
    log.info("upgrade.done", schema=schema.newest)


async def _save(
    environment: Environment, config: Config, database: Database, schema: Schema, free: Callable[[Path], int]
) -> None:
    """A backup of before the first migration; an upgrade that goes on after it broke off has one."""
    folder = environment.data / BACKUPS
    folder.mkdir(mode=0o700, exist_ok=True)
    if any((folder / _NAME.format(older, schema.newest)).exists() for older in range(1, schema.number)):
        return
    path = folder / _NAME.format(schema.number, schema.newest)
    roots = (environment.workspace, environment.data / PRINCIPALS, environment.data / KEYS)
    need = await asyncio.to_thread(_size, roots) + 2 * await size_of_tables(database)
    if (left := free(folder)) < need:
        raise OwnerMustAct(
            f"the backup before this upgrade takes up to {_mb(need)} in {folder}, and {_mb(left)} are free: "
            f"make room, or make {folder} a link to a folder on a larger disk"
        )
    log.info("upgrade.backup", file=str(path))
    async with _progress("backing up"):
        await back_up(environment, config, path, force=True, with_secrets=True)
    for old in sorted(folder.glob(_NAME.format("*", "*")), key=lambda file: file.stat().st_mtime)[:-KEPT]:
        old.unlink()


@asynccontextmanager
async def _kept(database: Database, instance: InstanceId) -> AsyncIterator[None]:
    """The lease is renewed, however long the block takes; it ends when somebody else has taken the lease."""
    upgrading = asyncio.current_task()
    assert upgrading is not None, "a task runs this"
    lost = asyncio.Event()

    async def renew() -> None:
        while not lost.is_set():
            await asyncio.sleep(EVERY_SECONDS)
            with suppress(TryAgainLater):
                async with database.connection() as conn:
                    if not await leases.take(conn, GATEWAY, instance, LEASE_SECONDS):
                        lost.set()
        upgrading.cancel()

    renewing = asyncio.create_task(renew(), name="lease")
    try:
        yield
    except asyncio.CancelledError:
        if lost.is_set():
            raise OwnerMustAct("another gateway took this database over during the upgrade; stop one of them") from None
        raise
    finally:
        renewing.cancel()


@asynccontextmanager
async def _progress(step: str) -> AsyncIterator[None]:
    """What takes longer than a second says that it goes on."""

    async def tell() -> None:
        seconds, pause = 0.0, FIRST_SECONDS
        while True:
            await asyncio.sleep(pause)
            seconds, pause = seconds + pause, NEXT_SECONDS
            log.info("upgrade.goes_on", step=step, seconds=round(seconds))

    telling = asyncio.create_task(tell(), name="progress")
    try:
        yield
    finally:
        telling.cancel()


def _size(roots: Iterable[Path]) -> int:
    """Bytes of the files below; what is gone meanwhile does not count."""
    size = 0
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                with suppress(OSError):
                    size += os.lstat(os.path.join(folder, name)).st_size
    return size


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
