"""The vitals of the gateway, for /status and the Health page."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from gateway.background.upkeep.event_loop import LagMonitor
from gateway.background.upkeep.heartbeat import Heartbeat
from gateway.background.upkeep.housekeeping import Checkpointing
from gateway.background.upkeep.ram import MemoryCeiling
from gateway.background.upkeep.timers import JobTable
from gateway.config.data.instance import StartHistory
from gateway.config.model import Config
from gateway.domain.health import Vitals
from gateway.domain.time import Clock
from gateway.flow.channels.supervisor import ChannelSupervisor
from gateway.flow.files.sync import FileSync
from gateway.flow.turn.environment import AgentEnvironments


@dataclass(frozen=True, slots=True, kw_only=True)
class VitalsReport:
    """Collects the findings of the watches."""

    lag: LagMonitor
    ram: MemoryCeiling
    channels: ChannelSupervisor
    starts: StartHistory
    checkpointing: Checkpointing
    environments: AgentEnvironments
    file_sync: FileSync
    heartbeat: Heartbeat
    job_table: JobTable
    config: Callable[[], Config]
    clock: Clock

    def now(self) -> Vitals:
        """The vitals as of the last look of each watch; asks none of them to look again."""
        return Vitals(
            loop=self.lag.lag,
            memory=self.ram.memory,
            channels=self.channels.vitals,
            unclean_ends=self.starts.ended(self.clock.now(), timedelta(days=1)),
            checkpoints="off" if self.config().checkpoints.every is None else self.checkpointing.state,
            files=self.environments.reading or (self.file_sync.state if self.file_sync.on else None),
            heartbeat=self.heartbeat.state,
            jobs=self.job_table.dates,
        )
