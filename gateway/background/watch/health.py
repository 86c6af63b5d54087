"""Signs of life: a file that is fresh while the gateway works, and the lease that keeps a second one away."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from gateway.config.files import write_regular
from gateway.domain.clock import Clock
from gateway.domain.errors import DatabaseDown, OwnerMustAct, TryAgainLater
from gateway.domain.ids import InstanceId
from gateway.store import leases
from gateway.store.migrate import check_not_outdated
from gateway.store.pool import Database

EVERY_SECONDS = 10.0
LEASE_SECONDS = 30.0
DROP_WITHIN = 5.0
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
        with suppress(DatabaseDown, TimeoutError):
            async with asyncio.timeout(DROP_WITHIN), database.connection() as conn:
                await leases.drop(conn, GATEWAY, instance)


@dataclass(slots=True)
class Health:
    """Keeps the lease and the health file fresh; what watches from outside reads the file's age.

    `well` says whether the last look found everything working, `waits` why the database did not let it, `lost` whether
    another gateway has the lease: then `stop` is set. `stuck` says which channels cannot even try to work, and why.
    """

    database: Database
    instance: InstanceId
    file: Path
    stuck: Callable[[], Mapping[str, str]]
    stop: asyncio.Event
    clock: Clock
    well: bool = field(default=True, init=False)
    lost: bool = field(default=False, init=False)
    waits: str = field(default="", init=False)

    async def look(self) -> None:
        """Renew both; the file only while everything works."""
        self.well = await self._holds_lease() and self._channels_work() and await self._write()

    async def _holds_lease(self) -> bool:
        """False also while the database cannot be asked; a reason to stop is only a lease that another gateway has."""
        try:
            async with self.database.connection() as conn:
                held = await leases.take(conn, GATEWAY, self.instance, LEASE_SECONDS)
                if held:
                    await check_not_outdated(conn)
        except TryAgainLater as exc:
            self.waits = str(exc) if isinstance(exc, DatabaseDown) else ""
            log.warning("health.database", error=str(exc))
            return False
        self.waits = ""
        if not held:
            log.error("health.lease_lost", problem="another gateway has taken over this database")
            self.lost = True
            self.stop.set()
        return held

    def _channels_work(self) -> bool:
        stuck = self.stuck()
        for name, why in stuck.items():
            log.error("health.channel", channel=name, problem=why)
        return not stuck

    async def _write(self) -> bool:
        stamp = f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}\n".encode()
        try:
            await asyncio.to_thread(write_regular, self.file, stamp)
        except OSError as exc:
            log.warning("health.file", error=str(exc))
            return False
        return True
