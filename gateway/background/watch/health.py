"""Signs of life: a file that is fresh while the gateway works, and the lease that keeps a second one away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import structlog

from gateway.domain.clock import Clock
from gateway.domain.errors import DatabaseDown, OwnerMustAct, TryAgainLater
from gateway.domain.ids import InstanceId
from gateway.store import leases
from gateway.store.migrate import check_not_outdated
from gateway.store.pool import Database

EVERY_SECONDS = 10.0
LEASE_SECONDS = 30.0
GATEWAY = "gateway"

log = structlog.get_logger(__name__)


@asynccontextmanager
async def being_the_gateway(database: Database, instance: InstanceId) -> AsyncIterator[None]:
    """Hold the lease on this database; raises `OwnerMustAct` while another gateway holds it."""
    async with database.connection() as conn:
        if not await leases.take(conn, GATEWAY, instance, LEASE_SECONDS):
            raise OwnerMustAct(
                "another gateway is running on this database; stop it first, or wait 30 seconds if it has just died"
            )
    try:
        yield
    finally:
        with suppress(DatabaseDown):
            async with database.connection() as conn:
                await leases.drop(conn, GATEWAY, instance)


class Health:
    """Keeps the lease and the health file fresh; what watches from outside reads the file's age."""

    def __init__(self, database: Database, instance: InstanceId, file: Path, clock: Clock) -> None:
        self._database = database
        self._instance = instance
        self._file = file
        self._clock = clock
        self._well = True

    @property
    def well(self) -> bool:
        """Whether the last look found everything working."""
        return self._well

    async def run(self) -> None:
        """Look every 10 s until cancelled."""
        while True:
            self._well = await self._holds_lease() and await self._write()
            await asyncio.sleep(EVERY_SECONDS)

    async def _holds_lease(self) -> bool:
        try:
            async with self._database.connection() as conn:
                held = await leases.take(conn, GATEWAY, self._instance, LEASE_SECONDS)
                await check_not_outdated(conn)
                return held
        except TryAgainLater as exc:
            log.warning("health.database", error=str(exc))
            return False

    async def _write(self) -> bool:
        stamp = f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}\n"
        try:
            await asyncio.to_thread(self._file.write_text, stamp)
        except OSError as exc:
            log.warning("health.file", error=str(exc))
            return False
        return True
