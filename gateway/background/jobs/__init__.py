"""Jobs: one kind of task per file, named after it; `runner(parts)` of a file builds the runner of its tasks."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from gateway.background.budgets import BackgroundModel
from gateway.background.cpu.extraction import TextExtraction
from gateway.background.upkeep.heartbeat import HeartbeatHalt
from gateway.background.worker import Runner
from gateway.config.plugins import offers
from gateway.domain.conversation.model import Highest, Reply, Usage
from gateway.domain.errors import OwnerMustAct
from gateway.domain.settings import VoiceReply
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.engine import Engine
from gateway.flow.files.uploads import Uploads
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.inbound.spool import Outages
from gateway.flow.journal.journal import Journal
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.outbound.sender import Outbound
from gateway.flow.trees.node import AgentModel
from gateway.flow.turn.loop import SizedModel
from gateway.flow.turn.runner import AgentParts
from gateway.flow.unattended.schedule_results import DeliveryFollowUp
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.work import steps, tasks

OUT_OF_ATTEMPTS = "out of attempts"
"""The error of a task whose attempts are used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The ways to reach the people of a run."""

    outbound: Outbound
    proactive: ProactiveMessages
    outages: Outages
    follow_up: DeliveryFollowUp


@dataclass(frozen=True, slots=True, kw_only=True)
class FileParts:
    """The parts that store, receive and read files."""

    workspaces: Workspaces
    uploads: Uploads
    journal: Journal
    extraction: TextExtraction


class ChatModel(Protocol):
    """The model for a message of a chat: the one that the message asks for, else the chat's."""

    def __call__(self, asked: str | None, at: AddressRow, *, owner: bool) -> SizedModel | None:
        """None: the configured one."""


@dataclass(frozen=True, slots=True)
class Speech:
    """Reads answers aloud: `speak` returns a recording and its cost, or raises `ModelError`; `highest` limits that.

    `reply` is when, as configured; a chat may have chosen otherwise.
    """

    speak: Callable[[str], Awaitable[tuple[bytes, Usage]]]
    highest: Callable[[str], Highest]
    model: str
    reply: VoiceReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models by their use, as configured at each call; None if none is connected."""

    chat: ChatModel
    agent: AgentModel
    heartbeat: Callable[[], SizedModel | None]
    summary: BackgroundModel
    cheap: BackgroundModel
    speech: Callable[[], Speech | None]
    """How answers are read aloud; None if nothing can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobParts:
    """The parts of which runners are built; each file passes only a few of them to its runner."""

    engine: Engine
    agents: AgentParts
    delivery: Delivery
    files: FileParts
    models: Models
    halt: HeartbeatHalt
    heartbeat_channel: Callable[[], str | None]
    """The channel for heartbeat messages, as configured; None: the channel on which the owner wrote last."""


@dataclass(slots=True)
class Job:
    """A runner whose tasks just end as failed once their attempts are used up."""

    engine: Engine

    async def give_up(self, run: Claim) -> None:
        """End the task."""
        await self.engine.database.run(lambda tx: tasks.finish(tx, run, Status.FAILED, error=OUT_OF_ATTEMPTS))

    async def complete(
        self, run: Claim, replies: Iterable[Reply | None], store: Callable[[Connection], Awaitable[None]]
    ) -> None:
        """End the task with what it stores, and record the calls of models; all or nothing. Raises `RunLost`."""

        async def end(tx: Connection) -> None:
            await tasks.hold(tx, run)
            for reply in filter(None, replies):
                await steps.model_called(tx, run, reply)
            await store(tx)
            await tasks.finish(tx, run, Status.COMPLETED)

        await self.engine.database.run(end)


def discover(parts: JobParts) -> dict[str, Runner]:
    """The runner of every kind of task; raises `OwnerMustAct` for a file without one."""
    found: dict[str, Runner] = {}
    for name, runner in offers(__name__, "runner", Callable):
        try:
            found[name] = runner(parts)
        except Exception as exc:
            raise OwnerMustAct(f"The job {name} cannot be built; fix or remove its file. {exc}") from exc
    return found
