"""The message's path, whole but for the messenger and the model: built as the composition root builds it."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from gateway import tools
from gateway.agent.limits import Limits
from gateway.app.assembly import Parts, assemble, assemble_way_in
from gateway.app.live_config import LiveConfig
from gateway.app.parts.core import Core
from gateway.background.cpu.executor import MAX_MEMORY_BYTES, Cpu
from gateway.background.cpu.extraction import Transcribe
from gateway.background.jobs import Speech
from gateway.background.jobs.agent import AgentRun
from gateway.background.jobs.chat import ChatTurns
from gateway.background.jobs.ingest import Ingest
from gateway.background.upkeep.health import Stop
from gateway.background.worker import Workplace
from gateway.config.data.instance import StartHistory
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.config.machine import SystemClock
from gateway.config.model import Config
from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.conversation.model import (
    Highest,
    ModelEvent,
    Prompt,
    Reply,
    TextDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from gateway.domain.ids import InstanceId
from gateway.domain.json import Json
from gateway.domain.people.access import Access
from gateway.domain.work.tasks import Claim, Lane
from gateway.flow.inbound.answers import Answer, Answers
from gateway.flow.inbound.persistence import Accepted
from gateway.flow.live import Live
from gateway.flow.people import meet
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.secrets.vault import Vault
from gateway.flow.signals import Signals
from gateway.llm.client import Description
from gateway.logs import SecretMask
from gateway.store.connection.pool import Database
from gateway.store.work import tasks
from gateway.tools import Family
from tests.fakes.channel import FakeChannel
from tests.flow.workshop import Workshop

OWNER = "1"
MEMBER = "2"
STRANGER = "3"
_ids = itertools.count(1000)


@dataclass
class FakeModel:
    """Answers each prompt by `answer`; a gate holds every call until it is set."""

    answer: Callable[[Prompt], Reply | Exception] = lambda prompt: said(f"re: {asked(prompt)}")
    prompts: list[Prompt] = field(default_factory=list)
    gate: asyncio.Event | None = None
    called: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    budget: int = 100_000
    most: Highest = field(default_factory=Highest)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        self.prompts.append(prompt)
        self.called.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
            reply = self.answer(prompt)
            if isinstance(reply, Exception):
                raise reply
            if reply.text:
                yield TextDelta(reply.text)
            yield reply
        finally:
            self.let_go.set()

    def prompt_budget(self) -> int:
        return self.budget

    def highest(self, prompt: Prompt) -> Highest:
        return self.most

    def describe(self) -> Description:
        return Description("fake", "a test", ("fake",), ())

    @property
    def answered(self) -> list[str]:
        """The newest words of the user at each call."""
        return [asked(prompt) for prompt in self.prompts]


def said(text: str, *calls: ToolCall) -> Reply:
    return Reply(text, calls, Usage(10, 5, 0, 0.001), "fake", 7)


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall("", name, json.dumps(arguments))


def in_turn(*replies: Reply | Exception) -> Callable[[Prompt], Reply | Exception]:
    """One after another, whatever is asked."""
    left = list(replies)
    return lambda _: left.pop(0)


def asked(prompt: Prompt) -> str:
    """The newest words of the user, without their stamps, and without what memory recalls."""
    last = next(m for m in reversed(prompt.messages) if isinstance(m, UserMessage))
    said = [part for part in last.text.split("\n\n") if not part.startswith("[Recalled")]
    return " + ".join(part.partition("] ")[2] for part in said)


def results(prompt: Prompt) -> list[dict[str, Any]]:
    """What the tools answered, as the model sees it."""
    return [json.loads(m.text) for m in prompt.messages if isinstance(m, ToolMessage)]


def message(text: str, *, chat: str = OWNER, sender: str = OWNER, id: str | None = None, **more: Any) -> Inbound:
    return Inbound(
        Address("fake", "bot", chat),
        Sender(sender, "Ada"),
        text,
        id or f"m{next(_ids)}",
        datetime.now(UTC),
        **{"private": True, "as_owner": True, **more},
    )


class InProcess(Cpu):
    """Does the work of the CPU process right here: most tests need no process of its own."""

    async def run(
        self, function: Callable[..., Json], *arguments: Json, seconds: float, memory: int = MAX_MEMORY_BYTES
    ) -> Json:
        return await asyncio.to_thread(function, *arguments)


@dataclass
class FakeCurrent(LiveConfig):
    """What a config.json would say, said by a test."""

    model: Any
    summaries: FakeModel | None
    bounds: Limits
    most: int
    listener: Transcribe | None
    configured: Collection[str]
    speaks: Speech | None = None

    def enabled_channels(self) -> Collection[str]:
        return self.configured

    def limits(self) -> Limits:
        return self.bounds

    def summary_model(self) -> Any:
        return self.summaries

    def cheap_model(self) -> Any:
        return self.summaries

    def agent_model(self, name: str | None, temperature: float, max_tokens: int | None) -> Any:
        return self.model

    def hear(self) -> Transcribe | None:
        return self.listener

    def highest_heard(self, size: int) -> Highest:
        return Highest(size / 100)

    def speech(self) -> Speech | None:
        return self.speaks

    def longest_file(self) -> int:
        return self.most


class MessagePath:
    """The parts of a gateway, and what a test may want to touch besides."""

    def __init__(self, parts: Parts, model: FakeModel, channel: FakeChannel, workshop: Workshop) -> None:
        way_in = assemble_way_in(parts)
        self.parts, self.way_in = parts, way_in
        self.model, self.channel, self.workshop = model, channel, workshop
        self.workplace = parts.core.workplace
        self.environment = parts.core.environment
        self.current = parts.core.current
        self.database = parts.core.database
        self.people = parts.core.people
        self.instance = parts.core.instance
        self.failpoints = parts.core.failpoints
        self.clock = parts.core.clock
        self.secrets = parts.core.secrets
        self.mask = parts.core.mask
        self.live = parts.core.live
        self.signals = parts.core.signals
        self.journal = parts.records.journal
        self.workspaces = parts.records.workspaces
        self.uploads = parts.records.uploads
        self.outbound = parts.way_out.outbound
        self.proactive = parts.way_out.proactive
        self.notices = parts.way_out.notices
        self.outages = parts.way_out.outages
        self.follow_up = parts.way_out.follow_up
        self.channel_leases = parts.way_out.leases
        self.questions = parts.turns.questions
        self.environments = parts.turns.environments
        self.mcp_connections = parts.turns.mcp
        self.jail = parts.turns.own.commands.workshop
        self.turn_runner = parts.turns.runner
        self.tool_files = parts.turns.own.tool_files
        self.worker = parts.work.worker
        self.runners = parts.work.worker.runners
        self.file_sync = parts.turns.file_sync
        self.tree_control = parts.work.trees
        self.traces = parts.work.traces
        self.indexing = parts.upkeep.indexing
        self.job_table = parts.upkeep.job_table
        self.inbound, self.command_runner, self.zones = way_in.inbound, way_in.command_runner, way_in.zones
        self.gate, self.commands, self.page_links = way_in.gate, way_in.commands, way_in.page_links
        self.vitals = parts.upkeep.vitals
        self.answers = Answers(self.database, self.live)

    @property
    def workspace(self) -> Path:
        return self.environment.workspace

    @property
    def turns(self) -> ChatTurns:
        return cast(ChatTurns, self.runners["chat"])

    @property
    def agent(self) -> AgentRun:
        return cast(AgentRun, self.runners["agent"])

    @property
    def ingest(self) -> Ingest:
        return cast(Ingest, self.runners["ingest"])

    async def say(self, *texts: str, **more: Any) -> Sequence[Accepted]:
        return await self.inbound.accept([message(text, **more) for text in texts])

    async def tell(self, text: str, **more: Any) -> Accepted:
        [accepted] = await self.say(text, **more)
        return accepted

    async def answer(self, accepted: Accepted) -> Answer:
        async with asyncio.timeout(60):
            answer = await self.answers.wait(accepted)
        self.signals.outbox.set()  # it is seen as soon as it is committed, which may be before its run has said so
        return answer

    async def ask(self, text: str, **more: Any) -> str:
        """Say it and wait for what is answered."""
        return (await self.answer(await self.tell(text, **more))).text

    async def settled(self) -> None:
        """Wait until what follows from people's answers is done."""
        async with asyncio.timeout(30):
            while await self.rows("select from tasks where kind = 'approval' and status in ('pending', 'running')"):
                self.signals.tasks.set()
                await asyncio.sleep(0.02)

    async def claim(self, lane: Lane = Lane.CHAT) -> Claim:
        """Take the one task that waits in a lane, as the worker would, but for summaries of conversations.

        It doesn't wait for what may follow a message; a task whose row is locked is looked at again.
        """
        for pause in (0.0, *[0.1] * 50):
            await asyncio.sleep(pause)
            async with self.database.connection() as conn:
                await conn.execute("update tasks set run_at = now() where status = 'pending' and kind = 'chat'")
                await conn.execute("update tasks set priority = -1 where kind = 'summarise' and status = 'pending'")
                if claimed := await tasks.claim(conn, self.instance, {lane: 1}):
                    return claimed[0]
        raise AssertionError(f"no task of the lane {lane} can be claimed")

    async def rows(self, question: str, *arguments: object) -> list[Any]:
        async with self.database.connection() as conn:
            return [tuple(row) for row in await conn.fetch(question, *arguments)]

    async def transcript(self) -> list[tuple[str, str]]:
        """Kind and text of everything in every session, in order, the unread last."""
        return await self.rows("select kind, text from messages order by seq is null, id")

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """With the worker and the sender running."""
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(work())
                for work in (
                    self.worker.run,
                    self.outbound.run,
                    self.inbound.spool.run,
                    self.journal.run,
                    self.outages.run,
                )
            ]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()


async def build(
    database: Database,
    workspace: Path,
    model: FakeModel,
    instance: InstanceId | None = None,
    *,
    families: Sequence[Family] | None = None,
    failpoints: Failpoints | None = None,
    limits: Limits | None = None,
    channel: FakeChannel | None = None,
    adopt: bool = True,
    at_tokens: int = 64_000,
    summaries: FakeModel | None = None,
    most: int = 1024**2,
    cpu: Cpu | None = None,
    hear: Transcribe | None = None,
    configured: Collection[str] = ("fake",),
    speech: Speech | None = None,
) -> MessagePath:
    """As the composition root builds it, with what a test replaces put in its place."""
    people = await meet(database, "Ada", {"fake": OWNER})
    people.allow({"fake": Access("allowlist", frozenset({OWNER, MEMBER}))})
    config = Config.model_validate({"compaction": {"at_tokens": at_tokens}, "models": {"embedding": "none"}})
    current = FakeCurrent(config, model, summaries, limits or Limits(), most, hear, configured, speech)
    environment = Environment(workspace.parent / "config.json", workspace.parent, workspace)
    mask, me, workshop = SecretMask(), instance or InstanceId(uuid4()), Workshop()
    workplace = Workplace(database, "gateway", me)
    workplace.elsewhere = ""
    core = Core(
        environment=environment,
        current=current,
        database=database,
        people=people,
        instance=me,
        clock=SystemClock(),
        failpoints=failpoints or Failpoints(None),
        secrets=LiveSecrets(Vault(database, workspace.parent, {}), people.owner.id, {}, mask.stored),
        mask=mask,
        workplace=workplace,
        live=Live(),
        signals=Signals(),
    )
    parts = assemble(
        core,
        starts=StartHistory(),
        stop=Stop(),
        families=(*tools.discover(), workshop.family) if families is None else tuple(families),
        cpu=cpu or InProcess(),
    )
    path = MessagePath(parts, model, channel or FakeChannel(), workshop)
    if adopt:
        await path.outbound.adopt("fake", path.channel)
    return path


async def crash(run: "asyncio.Task[None]") -> None:
    """Stop a run as a power cut does: nothing of it is written any more."""
    run.cancel()
    await asyncio.wait([run])


async def restarted(path: MessagePath, model: FakeModel | None = None) -> MessagePath:
    """The same gateway after a crash: same database, files and instance, nothing in memory; what it ran is free."""
    again = await build(path.database, path.workspace, model or FakeModel(), path.instance)
    async with path.database.connection() as conn:
        await tasks.died(conn, path.instance)
    return again
