"""What keeps an eye on the running gateway, keeps its house in order, and knows how it is."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog

from gateway.background.upkeep.event_loop import LagMonitor
from gateway.background.upkeep.health import Health, notify_systemd
from gateway.background.upkeep.housekeeping import Checkpointing, Clearing
from gateway.background.upkeep.ram import MemoryCeiling, ceiling
from gateway.background.upkeep.timers import Interval, Look, Periodic
from gateway.background.worker import Worker
from gateway.config.data.instance import StartHistory, record_notice
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.domain.health import Vitals
from gateway.domain.ids import InstanceId
from gateway.domain.text import tokens
from gateway.domain.time import Clock
from gateway.domain.work.tasks import BEAT_SECONDS
from gateway.domain.work.trees import FILES
from gateway.flow.channels.supervisor import ChannelSupervisor
from gateway.flow.outbound.proactive import Notices
from gateway.logs import prune
from gateway.store.connection.pool import Database
from gateway.store.work.instances import RENEW_SECONDS

DAY = timedelta(days=1)
LOG_PRUNING = "log pruning"
FIRST_CHECKPOINT = 30.0
"""Seconds: a start has more urgent things to do."""

Work = Mapping[str, Callable[[], Awaitable[None]]]

log = structlog.get_logger("gateway")


@dataclass
class Condition:
    """Watches, and what is done now and then; `shed` are the caches that memory can be taken from."""

    _environment: Environment
    _config: Callable[[], Config]
    _database: Database
    _instance: InstanceId
    _channel_manager: ChannelSupervisor
    _worker: Worker
    _notices: Notices
    _starts: StartHistory
    _stop: asyncio.Event
    _clock: Clock

    def __post_init__(self) -> None:
        data, stuck = self._environment.data, self._channel_manager.stuck
        file = self._environment.state / "health"
        self.health = Health(self._database, self._instance, file, stuck, self._stop, self._clock)
        self._lag = LagMonitor(awake=self.health.awake)
        self.shed: list[Callable[[], None]] = [tokens.forget]
        self._memory = MemoryCeiling(
            lambda: ceiling(self._config().limits.memory_mb), self.shed, self._worker.limit, self._notices.tell_owner
        )
        self.clearing = Clearing(
            self._database, self._environment.workspace / FILES, lambda: self._config().retention.keep, self._clock
        )
        self.checkpoints = Checkpointing(self._database, self._environment.workspace, data / "checkpoints", self._clock)

    @property
    def watches(self) -> Work:
        """What begins with the gateway. All of it goes by the monotonic clock: a clock that is set kills nothing."""
        periodic = (
            Periodic("leases and health file", RENEW_SECONDS, self.health.look),
            Periodic("leases of runs", BEAT_SECONDS, self._worker.beat),
            Periodic("channels", 5.0, self._channel_manager.look),
            Periodic("memory", 10.0, self._memory.look),
            Periodic("systemd", 10.0, partial(notify_systemd, self._environment.notify_socket, "WATCHDOG=1")),
        )
        return {
            "lag": self._lag.run,
            "restarts": self._tell_of_restarts,
            **{each.name: each.run for each in periodic},
        }

    @property
    def jobs(self) -> Mapping[str, Look]:
        """What can wait until it is ready, and is on view with its date."""
        first = self._clock.monotonic() + FIRST_CHECKPOINT
        checkpoints = Interval(lambda: self._config().checkpoints.every, self.checkpoints.run, self._clock, first)
        return {
            "checkpoints": checkpoints.look,
            LOG_PRUNING: Interval(lambda: DAY, self._prune_logs, self._clock).look,
            "retention": Interval(lambda: DAY, self.clearing.run, self._clock, first).look,
        }

    def vitals(self) -> Vitals:
        """How the gateway is."""
        return Vitals(
            loop=self._lag.lag,
            memory=self._memory.memory,
            channels=self._channel_manager.vitals,
            unclean_ends=self._starts.ended(self._clock.now(), timedelta(days=1)),
            checkpoints="off" if self._config().checkpoints.every is None else self.checkpoints.state,
        )

    async def _tell_of_restarts(self) -> None:
        """Once an hour, however often it restarts."""
        now = self._clock.now()
        if count := self._starts.looping(now):
            log.error("gateway.crash_loop", ends=count)
        if text := self._starts.notice(now):
            await self._notices.tell_owner(text)
            await asyncio.to_thread(record_notice, self._environment.state, self._clock)

    async def _prune_logs(self) -> None:
        today = self._clock.now().date()
        folder, keep = self._environment.state / "logs", self._config().logs.keep
        if gone := await asyncio.to_thread(prune, folder, keep, today):
            log.info("logs.pruned", files=gone)
