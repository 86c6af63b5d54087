"""Upgrades: migrates a database in use to this program's schema, after a backup."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from itertools import chain, repeat

import structlog

from gateway.app.storage.backup import back_up
from gateway.app.storage.manifest import CHANNELS, KEYS, PRINCIPALS
from gateway.background.upkeep.health import ALONE_SECONDS, GATEWAY, alone, joined
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.domain.errors import DiskFull, OwnerMustAct, TryAgainLater
from gateway.domain.ids import InstanceId
from gateway.store.connection.pool import Database
from gateway.store.connection.server import size_of_tables
from gateway.store.migrate import Schema, migrate, schema_of
from gateway.store.people import principals
from gateway.store.work import instances
from gateway.store.work.instances import RENEW_SECONDS
from gateway.workspace.files.access import size_of

BACKUPS = "backups"
KEPT = 2
FIRST_SECONDS = 1.0
_NAME = "upgrade-{}-to-{}.tar.gz"

log = structlog.get_logger("gateway")


@asynccontextmanager
async def join_upgraded(
    environment: Environment, config: Config, database: Database, instance: InstanceId
) -> AsyncIterator[None]:
    """Join the database as a gateway, after migrating its schema; raises `OwnerMustAct` if that is impossible.

    A database in use is backed up before.
    A migration that programs elsewhere can't work with has the database to itself.
    """
    if not (await schema_of(database)).number:
        await migrate(database)
    if (schema := await schema_of(database)).missing:
        oldest = 0
        if schema.number >= schema.compatible_from:  # before, nobody knows enough, and may lack the table
            oldest = await database.read(lambda conn: instances.oldest_elsewhere(conn, instance))
        async with nullcontext() if oldest >= schema.compatible_from else _alone(database, instance):
            if await database.read(principals.has_owner):
                await _save(environment, config, database, schema)
            await migrate(database)
    async with joined(database, instance, "gateway"):
        yield


@asynccontextmanager
async def _alone(database: Database, instance: InstanceId) -> AsyncIterator[None]:
    async with alone(database, instance), asyncio.TaskGroup() as group:
        renewing = group.create_task(_renew(database, instance), name="upgrade")
        yield
        renewing.cancel()


async def _save(environment: Environment, config: Config, database: Database, schema: Schema) -> None:
    """Back up before the first migration; after an interrupted upgrade, that backup already exists."""
    folder = environment.data / BACKUPS
    folder.mkdir(mode=0o700, exist_ok=True)
    kept = sorted(folder.glob(_NAME.format("*", "*")), key=lambda file: file.stat().st_mtime)
    if kept and kept[-1].name in {_NAME.format(older, schema.newest) for older in range(schema.number)}:
        return
    roots = (environment.workspace, *(environment.data / name for name in (PRINCIPALS, KEYS, CHANNELS)))
    need = await asyncio.to_thread(lambda: sum(map(size_of, roots))) + 2 * await size_of_tables(database)
    if (free := shutil.disk_usage(folder).free) < need:
        raise DiskFull(
            f"the backup before this upgrade takes up to {need / 1e6:.0f} MB in {folder}, where {free / 1e6:.0f} MB "
            "are free: make room, or put a link to a folder on a larger disk in its place"
        )
    path = folder / _NAME.format(schema.number, schema.newest)
    log.info("upgrade.backup", file=str(path))
    await back_up(environment, config, path, nullcontext(database), force=True, with_secrets=True)
    for old in [file for file in kept if file != path][: 1 - KEPT]:
        old.unlink()


async def _renew(database: Database, instance: InstanceId) -> None:
    """Renew the lease until cancelled, and log that a long upgrade continues."""
    for pause in chain([FIRST_SECONDS], repeat(RENEW_SECONDS)):
        await asyncio.sleep(pause)
        log.info("upgrade.goes_on")
        with suppress(TryAgainLater):
            if not await database.run_alone(lambda conn: instances.take_lease(conn, GATEWAY, instance, ALONE_SECONDS)):
                raise OwnerMustAct("another gateway took this database over during the upgrade; stop one of them")
