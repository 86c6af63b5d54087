"""Jobs: one kind of task per file, named after it; `runner(services)` of a file makes what runs its tasks."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.agent.limits import Limits
from gateway.background.cpu.executor import Cpu
from gateway.background.cpu.extraction import Transcribe
from gateway.background.upkeep.heartbeat import Halt
from gateway.background.worker import Runner
from gateway.config.failpoints import Failpoints
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.domain.time import Clock
from gateway.flow.approvals.questions import Questions
from gateway.flow.files.sync import FileSync
from gateway.flow.files.uploads import Uploads
from gateway.flow.inbound.spool import Outages
from gateway.flow.journal.journal import Journal
from gateway.flow.live import Live
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.outbound.sender import Outbound
from gateway.flow.people import People
from gateway.flow.turn.environment import AgentEnvironments
from gateway.flow.turn.loop import SizedModel
from gateway.flow.turn.runner import RunFinisher, TurnRunner
from gateway.flow.unattended.schedule_results import DeliveryFollowUp
from gateway.store.connection.pool import Database


@dataclass(frozen=True, slots=True)
class Services:
    """What jobs may use. What an edited config.json may change is asked for whenever it is needed."""

    database: Database
    people: People
    environments: AgentEnvironments
    file_sync: FileSync
    uploads: Uploads
    journal: Journal
    outages: Outages
    outbound: Outbound
    proactive: ProactiveMessages
    turn_runner: TurnRunner
    finisher: RunFinisher
    follow_up: DeliveryFollowUp
    questions: Questions
    live: Live
    cpu: Cpu
    halt: Halt
    clock: Clock
    failpoints: Failpoints
    data: Path
    config: Callable[[], Config]
    limits: Callable[[], Limits]
    summary_model: Callable[[], SizedModel | None]
    cheap_model: Callable[[], SizedModel | None]
    heartbeat_model: Callable[[], SizedModel | None]
    named_model: Callable[[str | None], SizedModel | None]
    agent_model: Callable[[str | None, float, int | None], SizedModel | None]
    hear: Callable[[], Transcribe | None]
    wake_scheduler: Callable[[], None]


def discover(services: Services) -> dict[str, Runner]:
    """The runner of every kind of task; raises `OwnerMustAct` for a file that has none."""
    found: dict[str, Runner] = {}
    for module in pkgutil.iter_modules(__path__):
        try:
            found[module.name] = importlib.import_module(f"{__name__}.{module.name}").runner(services)
        except Exception as exc:
            raise OwnerMustAct(f"The job {module.name} cannot be loaded; fix or remove its file. {exc}") from exc
    return found
