"""What keeps an eye on the running gateway, keeps its house in order, and knows how it is."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

import structlog

from gateway.background.checkpointing import Checkpointing
from gateway.background.cpu import Cpu
from gateway.background.watch.footprint import ceiling
from gateway.background.watch.health import Health
from gateway.background.watch.lag import LagMonitor
from gateway.background.watch.ram import MemoryCeiling
from gateway.background.watch.watchdog import Watchdog
from gateway.background.worker import Worker
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.config.starts import Starts, record_told
from gateway.domain import tokens
from gateway.domain.clock import Clock
from gateway.domain.ids import InstanceId
from gateway.domain.vitals import Vitals
from gateway.flow.channels.manager import ChannelManager
from gateway.flow.outbound.notices import Notices
from gateway.logs import prune
from gateway.store.pool import Database

DAY_SECONDS = 86_400.0

Work = Mapping[str, Callable[[], Awaitable[None]]]

log = structlog.get_logger("gateway")


class Condition:
    """Watches, and what is done now and then; `shed` are the caches that memory can be taken from."""

    def __init__(
        self,
        environment: Environment,
        config: Callable[[], Config],
        database: Database,
        instance: InstanceId,
        cpu: Cpu,
        channel_manager: ChannelManager,
        worker: Worker,
        notices: Notices,
        starts: Starts,
        clock: Clock,
    ) -> None:
        self._environment = environment
        self._config = config
        self._channel_manager = channel_manager
        self._notices = notices
        self._starts = starts
        self._clock = clock
        self._cpu = cpu
        self._health = Health(database, instance, environment.data / "health", clock)
        self._lag = LagMonitor()
        self._watchdog = Watchdog(channel_manager, clock)
        self.shed: list[Callable[[], None]] = [tokens.forget]
        self._memory = MemoryCeiling(
            lambda: ceiling(config().limits.memory_mb), self.shed, worker.limit, notices.tell_owner, clock
        )
        checkpoints = environment.data / "checkpoints"
        self._checkpoints = Checkpointing(
            database, environment.workspace, checkpoints, lambda: config().checkpoints.every, clock
        )

    @property
    def well(self) -> bool:
        """Whether the last look found everything working."""
        return self._health.well

    @property
    def watches(self) -> Work:
        """What begins with the gateway."""
        return {
            "health": self._health.run,
            "lag": self._lag.run,
            "memory": self._memory.run,
            "watchdog": self._watchdog.run,
            "restarts": self._tell_of_restarts,
        }

    @property
    def chores(self) -> Work:
        """What can wait until it is ready."""
        return {"checkpoints": self._checkpoints.run, "logs": self._prune_logs}

    def vitals(self) -> Vitals:
        """How the gateway is."""
        return Vitals(
            loop=self._lag.lag,
            memory=self._memory.memory,
            channels=self._channel_manager.vitals,
            unclean_ends=self._starts.ended(self._clock.now(), timedelta(days=1)),
            checkpoints=self._checkpoints.state,
        )

    async def close(self) -> None:
        """End the CPU process."""
        await self._cpu.close()

    async def _tell_of_restarts(self) -> None:
        """Once an hour, however often it restarts."""
        now = self._clock.now()
        if count := self._starts.looping(now):
            log.error("gateway.crash_loop", ends=count)
        if text := self._starts.notice(now):
            await self._notices.tell_owner(text)
            await asyncio.to_thread(record_told, self._environment.data, self._clock)

    async def _prune_logs(self) -> None:
        """At the start and every day."""
        while True:
            today = self._clock.now().date()
            folder, keep = self._environment.data / "logs", self._config().logs.keep
            if gone := await asyncio.to_thread(prune, folder, keep, today):
                log.info("logs.pruned", files=gone)
            await self._clock.sleep(DAY_SECONDS)
