"""The gateway's database: the one that config.json names, the embedded server, or a temporary one."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from gateway.background.upkeep.timers import keep_running
from gateway.beside import beside
from gateway.config.data.instance import running_pid
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.store.connection.pool import Database
from gateway.store.embedded.cluster import has_cluster
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.errors import reaching
from gateway.store.memory import vectors
from gateway.store.migrate import check_schema, migrate

PAUSES = (0.2, 1.0)
"""Seconds between attempts to start an embedded server; after these it counts as broken."""


def has_database(environment: Environment, config: Config) -> bool:
    """Whether a database exists; False before the first start."""
    return config.database.url is not None or has_cluster(environment.data)


@asynccontextmanager
async def open_database(environment: Environment, config: Config) -> AsyncIterator[Database]:
    """The database for a command, started if needed; raises `OwnerMustAct` unless its schema fits this program."""
    if not has_database(environment, config):
        raise OwnerMustAct(f"there is no gateway in {environment.data} yet; `supaclaw up` sets one up")
    async with reach(environment, config, mine=False) as database:
        await check_schema(database)
        yield database


@asynccontextmanager
async def reach(environment: Environment, config: Config, *, mine: bool) -> AsyncIterator[Database]:
    """The database, whatever its schema; `mine` as in `postgres`."""
    async with postgres(environment, config, mine=mine) as dsn, await Database.connect(dsn) as database:
        yield database


@asynccontextmanager
async def postgres(environment: Environment, config: Config, *, mine: bool) -> AsyncIterator[str]:
    """The DSN. An embedded server is kept running, and stopped at the end if it is `mine` or was started here.

    A gateway that dies leaves it running; the next gateway finds it and only logs in.
    """
    if (url := config.database.url) is not None:
        yield url.get_secret_value()
        return
    server = EmbeddedPostgres(environment.data)
    found_running = server.is_running
    try:
        dsn = await _started(server)
        async with beside(keep_running("postgres", server.supervise), "postgres"):
            yield f"{dsn}&member_password={server.member_password}"
    finally:
        if mine or not (found_running or running_pid(environment.data)):
            await server.stop()


async def _started(server: EmbeddedPostgres) -> str:
    """Start the server; retries, since a killed server may need a second start."""
    with reaching():
        for pause in PAUSES:
            with suppress(OwnerMustAct):
                return await server.start()
            await asyncio.sleep(pause)
        return await server.start()


@asynccontextmanager
async def temporary_database(purpose: str) -> AsyncIterator[Database]:
    """A temporary server with this program's schema and the vector tables; `purpose` names its folder."""
    with tempfile.TemporaryDirectory(prefix=f"supaclaw-{purpose}-") as folder:
        server = EmbeddedPostgres(Path(folder))
        starting = asyncio.create_task(server.start())  # it ends before the server is stopped, also if we are cancelled
        try:
            async with await Database.connect(await asyncio.shield(starting)) as database:
                await migrate(database)
                await database.run(vectors.ensure_table)
                yield database
        finally:
            await asyncio.wait([starting])
            await server.stop()
