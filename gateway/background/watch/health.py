"""Signs of life: a file that is fresh while the gateway works, and the lease that keeps a second one away."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from gateway.background.watch.lag import always
from gateway.config.files import write_regular
from gateway.domain.clock import Clock
from gateway.domain.errors import DatabaseDown, OwnerMustAct, TryAgainLater
from gateway.domain.ids import InstanceId
from gateway.store import leases
from gateway.store.migrate import check_not_outdated
from gateway.store.pool import Database

EVERY_SECONDS = 10.0
LEASE_SECONDS = 30.0
FROZEN_SECONDS = 5.0
ANSWER_SECONDS = 5.0
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
            async with asyncio.timeout(ANSWER_SECONDS), database.connection() as conn:
                await leases.drop(conn, GATEWAY, instance)


@dataclass(slots=True)
class Health:
    """Keeps the lease and the health file fresh; what watches from outside reads the file's age.

    `well` says whether the last look found everything working, `database_problem` why the database did not let it,
    `lost` whether another gateway has the lease: then `stop` is set, and `leave` may end the process at once. `stuck`
    says which channels cannot even try to work, and why.
    """

    database: Database
    instance: InstanceId
    file: Path
    stuck: Callable[[], Mapping[str, str]]
    stop: asyncio.Event
    clock: Clock
    leave: Callable[[], None] = lambda: None
    well: bool = field(default=True, init=False)
    lost: bool = field(default=False, init=False)
    database_problem: str = field(default="", init=False)
    _renewed_at: float = field(default_factory=always, init=False)
    _awake_at: float = field(default_factory=always, init=False)

    async def look(self) -> None:
        """Renew both; the file only while everything works."""
        while not (held := await self._holds_lease()) and self._over and not self.lost:
            self.well = False
            await asyncio.sleep(1.0)
        self.well = held and self._channels_work() and await self._write()

    def awake(self) -> None:
        """Said often, and before every statement. Who slept past the lease asks first whose it is by now.

        Nothing else runs meanwhile. Without an answer in time it goes on, as in any outage of the database.
        """
        before, self._awake_at = self._awake_at, always()
        if self._awake_at - before < FROZEN_SECONDS or not self._over or self.lost:
            return
        answers: list[bool] = []

        def ask() -> None:
            with suppress(TryAgainLater, OwnerMustAct, TimeoutError):
                answers.append(asyncio.run(self._taken()))

        asking = threading.Thread(target=ask, name="lease", daemon=True)
        asking.start()
        asking.join(ANSWER_SECONDS)
        self._awake_at = always()
        if answers == [False]:
            self._lose()

    @property
    def _over(self) -> bool:
        """Whether another gateway may have the lease, by a clock that counts sleep."""
        return always() - self._renewed_at >= LEASE_SECONDS

    async def _holds_lease(self) -> bool:
        """False also while the database cannot be asked; a reason to stop is only a lease that another gateway has."""
        try:
            held = await self._taken()
        except (TryAgainLater, TimeoutError) as exc:
            self.database_problem = str(exc) or "it does not answer"
            log.warning("health.database", error=str(exc))
            return False
        self.database_problem = ""
        if not held:
            self._lose()
        return held

    async def _taken(self) -> bool:
        """Whether the lease is ours; connections from before a freeze may be dead without a word."""
        if not self._over:
            return await self._take(self.database)
        async with asyncio.timeout(ANSWER_SECONDS), await self.database.apart() as apart:
            return await self._take(apart)

    async def _take(self, database: Database) -> bool:
        asked = always()
        async with database.connection() as conn:
            if held := await leases.take(conn, GATEWAY, self.instance, LEASE_SECONDS):
                self._renewed_at = asked
                await check_not_outdated(conn)
        return held

    def _lose(self) -> None:
        log.error("health.lease_lost", problem="another gateway has taken over this database")
        self.lost = True
        self.stop.set()
        self.leave()

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
