"""Health: the health file, notifications for systemd, and the leases that an instance holds."""

import asyncio
import platform
import socket
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from gateway.config.data.files import write_regular
from gateway.config.machine import boot_seconds
from gateway.domain.errors import DatabaseDown, OwnerMustAct, TryAgainLater
from gateway.domain.ids import InstanceId
from gateway.flow.engine import Engine
from gateway.logs.errors import logged
from gateway.store.connection.pool import Database
from gateway.store.migrate import check_not_outdated
from gateway.store.work import instances
from gateway.store.work.instances import Kind

log = structlog.get_logger(__name__)


async def notify_systemd(address: str | None, state: str) -> None:
    """Send a state to `$NOTIFY_SOCKET`; an address that begins with @ is abstract. Never raises, never waits."""
    if not address:
        return
    told = logged(log, "systemd.not_told", OSError, state=state)
    with told, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)


FILE_SECONDS = 9.0
ALONE_SECONDS = 30.0
FROZEN_SECONDS = 5.0
ANSWER_SECONDS = 5.0
GATEWAY = "gateway"
"""The lease for exclusive use of a database. Gateways before 0.3 hold it all the time."""


@asynccontextmanager
async def joined(database: Database, instance: InstanceId, kind: Kind) -> AsyncIterator[None]:
    """Join the database as an instance; raises `TryAgainLater` while another instance uses it exclusively.

    `alone` takes its lease first and then looks for instances; this function works the other way round, so that one of
    the two always sees the other.
    """
    async with database.connection() as conn:
        if not await instances.take_lease(conn, instances.life_lease(instance), instance, instances.LEASE_SECONDS):
            raise OwnerMustAct(f"another gateway is running on this database as {instance}; stop it first")
    try:
        if await database.read(lambda conn: instances.lease_is_taken(conn, GATEWAY, instance)):
            raise TryAgainLater("the database is being upgraded, or an older gateway runs on it; stop that one")
        await database.run(lambda tx: instances.enter(tx, instance, platform.node(), kind))
        yield
    finally:
        with suppress(DatabaseDown, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS), database.transaction() as conn:
                await instances.drop_lease(conn, instances.life_lease(instance), instance)
                await instances.leave(conn, instance)


@asynccontextmanager
async def alone(database: Database, instance: InstanceId) -> AsyncIterator[None]:
    """Use the database exclusively; raises `OwnerMustAct` if another instance runs."""
    if not await database.run_alone(lambda conn: instances.take_lease(conn, GATEWAY, instance, ALONE_SECONDS)):
        raise OwnerMustAct(
            "another gateway is running on this database; stop it first, or wait 30 seconds if it has just died"
        )
    try:
        if await database.read(lambda conn: instances.work_elsewhere(conn, instance)):
            raise OwnerMustAct(
                "another gateway or a worker runs on this database; stop it, or wait 30 seconds if it has just died"
            )
        yield
    finally:
        with suppress(DatabaseDown, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS), database.connection() as conn:
                await instances.drop_lease(conn, GATEWAY, instance)


class Stop(asyncio.Event):
    """The gateway stops once it is set, and then starts again if it `restarts`."""

    restarts = False

    def restart(self) -> None:
        """Stop and start again, unless the gateway stops already."""
        self.restarts = self.restarts or not self.is_set()
        self.set()

    def exit(self) -> None:
        """Stop without starting again."""
        self.restarts = False
        self.set()


@dataclass(slots=True)
class Health:
    """Renews the leases and the health file; a supervisor reads the age of the file.

    `healthy` says whether the last look found everything working, `database_problem` why the database failed, `lost`
    whether another instance has one of the `held` leases: then `stop` is set, and subscribers to `signals.lost` may end
    the process at once. `stuck` says which channels cannot even try to work, and why.
    """

    engine: Engine
    file: Path
    stuck: Callable[[], Mapping[str, str]]
    stop: Stop
    held: Collection[str]
    """Further leases of this instance; read at each look."""
    healthy: bool = field(default=True, init=False)
    lost: bool = field(default=False, init=False)
    database_problem: str = field(default="", init=False)
    _renewed_at: float = field(default_factory=boot_seconds, init=False)
    _awake_at: float = field(default_factory=boot_seconds, init=False)
    _written_at: float | None = field(default=None, init=False)

    async def look(self) -> None:
        """Renew the leases; write the file if everything works."""
        while not (held := await self._holds_lease()) and self._over and not self.lost:
            self.healthy = False
            await asyncio.sleep(1.0)
        self.healthy = held and self._channels_work() and await self._write()
        if not self.healthy:
            self._written_at = None

    def check_after_freeze(self) -> None:
        """After a freeze longer than the lease, ask who holds it now. Called often, and before every statement.

        The event loop waits meanwhile. Without an answer in time the process continues, as in any database outage.
        """
        before, self._awake_at = self._awake_at, boot_seconds()
        if self._awake_at - before < FROZEN_SECONDS or not self._over or self.lost:
            return
        answers: list[bool] = []

        def ask() -> None:
            with suppress(TryAgainLater, OwnerMustAct, TimeoutError):
                answers.append(asyncio.run(self._taken()))

        asking = threading.Thread(target=ask, name="lease", daemon=True)
        asking.start()
        asking.join(ANSWER_SECONDS)
        self._awake_at = boot_seconds()
        if answers == [False]:
            self._lose()

    @property
    def _over(self) -> bool:
        """Whether another gateway may have the lease, by a clock that counts sleep."""
        return boot_seconds() - self._renewed_at >= instances.LEASE_SECONDS

    async def _holds_lease(self) -> bool:
        """Whether this instance holds its leases; False also while the database is unavailable.

        Only a lease that another instance has stops this one.
        """
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
        """Renew the leases; return whether all are ours. After a freeze, use a new connection: old ones may be dead."""
        if not self._over:
            return await self._take(self.engine.database)
        async with asyncio.timeout(ANSWER_SECONDS), await self.engine.database.apart() as apart:
            return await self._take(apart)

    async def _take(self, database: Database) -> bool:
        asked = boot_seconds()
        async with database.connection() as conn:
            names = self._names()
            lost = names - await instances.take_leases(conn, names, self.engine.instance, instances.LEASE_SECONDS)
            for name in (given_up := names - self._names()):
                await instances.drop_lease(conn, name, self.engine.instance)
            if held := lost <= given_up:
                self._renewed_at = asked
                await check_not_outdated(conn)
        return held

    def _names(self) -> set[str]:
        return {instances.life_lease(self.engine.instance), *self.held}

    def _lose(self) -> None:
        log.error("health.lease_lost", problem="another gateway has taken over what this one held")
        self.lost = True
        self.stop.set()
        self.engine.signals.lost.publish(None)

    def _channels_work(self) -> bool:
        stuck = self.stuck()
        for name, why in stuck.items():
            log.error("health.channel", channel=name, problem=why)
        return not stuck

    async def _write(self) -> bool:
        now = self.engine.clock.monotonic()
        if self._written_at is not None and now - self._written_at < FILE_SECONDS:
            return True
        stamp = f"{self.engine.clock.now():%Y-%m-%dT%H:%M:%SZ}\n".encode()
        try:
            await asyncio.to_thread(write_regular, self.file, stamp)
        except OSError as exc:
            log.warning("health.file", error=str(exc))
            return False
        self._written_at = now
        return True
