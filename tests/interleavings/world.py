"""The actors: the product's own accept, commands, turns, trees, senders and upkeep, in two processes on one Postgres.

No journal, no web and no approvals: their statements are not explored here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import asyncpg

from gateway.domain.conversation.inbound import Arrival, Inbound
from gateway.domain.conversation.model import Prompt, Reply
from gateway.domain.conversation.tools import AnyTool, Caller, Effect, Labelled, Tool, ToolClass
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import InstanceId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.flow.inbound.acceptance import _chat, _entry_id
from gateway.flow.trees.control import ProgramRequest
from gateway.store.connection.pool import Database
from gateway.store.work import tasks
from gateway.tools import Services
from tests.fakes.channel import FakeChannel
from tests.flow.path import FakeModel, MessagePath, asked, build, call, message, results, said
from tests.flow.trees.test_trees import is_node, subtasks, task_of
from tests.flow.workshop import Word
from tests.interleavings.invariants import Invariants, Violation
from tests.interleavings.scheduler import CURRENT, Draws, Process, Scheduler, SteppedDatabase

KINDS = ("chat", "agent")
NAMES = ("one", "two")
EXPIRED = "update tasks set lease_until = now() - interval '1 s' where status = 'running'"
DUE = "update tasks set run_at = now(), held_until = null where status = 'pending' and kind = any($1)"
DELIVERABLE = "update outbox set run_at = now() where state = 'pending'"
ROOT = """select id from tasks where kind = 'agent' and parent_id is null
          and status not in ('completed', 'failed', 'cancelled') limit 1"""
T = TypeVar("T")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
LEFT = (
    "update tasks set status = 'cancelled', open_children = 0, worker = null, lease_until = null"
    " where status not in ('completed', 'failed', 'cancelled')",
    "update outbox set state = 'failed' where state in ('pending', 'sending')",
    "update inbox set handled_at = now() where handled_at is null",
)
TRIES = 12
FAMILIES = (
    ((), ("accept", "work", "work2", "recover", "accept2", "send")),
    ((), ("accept", "again", "work", "accept2", "accept3", "edit", "work2")),
    (("accept",), ("work", "new", "stop", "accept2", "work2", "recover", "send")),
    (("accept", "work"), ("send", "send2", "accept3", "work2")),
    (("tree",), ("node", "cancel")),
    (("tree",), ("node", "node2", "cancel")),
    (("tree",), ("node", "node2", "recover", "beat")),
)
"""Who has acted before, and who meets then, of whom a schedule may leave out some."""


def answer(prompt: Prompt) -> Reply:
    """A root splits into two, the rest works; a chat acts once where it is asked to."""
    if is_node(prompt):
        if task_of(prompt).startswith("root") and not results(prompt):
            return subtasks(("main", "left"), ("main", "right"))
        return said("done")
    words = asked(prompt)
    acts = "act" in words and not results(prompt)
    return said("", call("act", text="x")) if acts else said(f"re: {words}")


@dataclass
class World:
    """Two processes with their parts, which many schedules use one after the other."""

    database: Database
    workspace: Path
    monitor: asyncpg.Connection
    number: int = 0
    invariants: Invariants = field(init=False)
    paths: dict[str, MessagePath] = field(default_factory=dict)
    stepped: dict[str, SteppedDatabase] = field(default_factory=dict)
    seed: Random = field(default_factory=lambda: Random(0))
    ends: Random = field(default_factory=lambda: Random(0))

    def random_bytes(self, size: int) -> bytes:
        """Beginnings are the actor's own, so that the order of ids is the same in each replay; ends are new."""
        actor = CURRENT.get()
        ids = actor.uuids if actor else self.seed
        return ids.randbytes(size // 2) + self.ends.randbytes(size - size // 2)

    async def path(self, name: str) -> MessagePath:
        """The parts of a process; those of a dead one are built anew."""
        if name not in self.paths:
            own = self.database
            database = SteppedDatabase(own._pool, own._members, direct=True)
            database.process = Process(name)
            folder = self.workspace / name / "workspace"
            folder.mkdir(parents=True, exist_ok=True)
            channel, instance = FakeChannel(), InstanceId(UUID(int=NAMES.index(name) + 1))
            self.invariants.channels.append(channel)
            path = await build(database, folder, FakeModel(answer), instance, families=[self._tools], channel=channel)
            self.stepped[name], self.paths[name] = database, path
        return self.paths[name]

    def _tools(self, _services: Services) -> tuple[AnyTool, ...]:
        async def act(_word: Word, caller: Caller) -> Labelled:
            self.invariants.acts.append(f"{caller.task}/{caller.ordinal}")
            return Labelled({"did": "it"}, Label.UNTRUSTED)

        return (Tool("act", "Acts.", Word, act, Effect.ONCE, 1.0, kind=ToolClass.READ),)

    async def explore(self, draws: Draws, *, faults: int) -> list[str]:
        """Run one schedule and what it leaves; returns its statements. Raises `Violation`."""
        self.number += 1
        self.invariants = Invariants(self.monitor)
        self.seed = Random(0)
        self.paths.clear()  # what a process remembers would make a schedule depend on those before it
        await self.monitor.execute("update sessions set ended_by_person = false")  # the next chat would begin with it
        paths = {name: await self.path(name) for name in NAMES}
        await self.invariants.begin()
        scheduler = Scheduler(draws, self.monitor, self.invariants.check, faults, self.invariants.deadlocks)
        for database in self.stepped.values():
            database.scheduler = scheduler
        chat = Chat(self, f"c{self.number}", paths)
        for name, (process, work) in (await chat.begin(draws)).items():
            scheduler.start(name, self.stepped[process].process, work())
        try:
            await scheduler.run()
            await self._finish(chat)
        except Violation as violation:
            await scheduler.abandon()
            await self._clear()
            raise Violation(f"{violation}\n" + "\n".join(scheduler.trace)) from None
        return scheduler.trace

    async def _clear(self) -> None:
        """Leave nothing open of a schedule that failed."""
        for statement in LEFT:
            await self.monitor.execute(statement)

    async def _finish(self, chat: "Chat") -> None:
        """Let the platform send again what was not acknowledged, restart what died, and work until nothing is left."""
        for name in NAMES:
            if self.stepped[name].process.dead:
                instance = self.paths.pop(name).instance
                async with self.database.connection() as conn:
                    await tasks.died(conn, instance)
        chat.paths = {name: await self.path(name) for name in NAMES}
        for database in self.stepped.values():
            database.process.dead = False
        for path in chat.paths.values():
            await path.command_runner.resume()
        await chat.deliver_again()
        for _ in range(TRIES):
            await self.monitor.execute(EXPIRED)
            await chat.paths["one"].worker.beat()
            for path in chat.paths.values():
                await self.monitor.execute(DUE, KINDS)
                await chat.work(path, Lane.CHAT)
                await self.monitor.execute(DUE, KINDS)
                await chat.work(path, Lane.AGENTS)
                await self.monitor.execute(DELIVERABLE)
                await chat.send(path)
            if not await self.monitor.fetchval(
                "select exists (select from tasks where kind = any($1) and status in "
                "('pending', 'running', 'pending_subtask'))",
                KINDS,
            ):
                break
        await chat.send(chat.paths["one"])
        await self.invariants.check_end(chat.name)


@dataclass
class Chat:
    """A chat of its own for each schedule, and a tree of tasks."""

    world: World
    name: str
    paths: dict[str, MessagePath]
    unacknowledged: dict[str, Inbound] = field(default_factory=dict)

    async def begin(self, draws: Draws) -> dict[str, tuple[str, Work]]:
        """Who takes part, and in which process, after those of the prelude have acted."""
        before, meet = FAMILIES[draws.next() % len(FAMILIES)]
        actors, number = self._actors(), draws.next()
        for name in before:
            await actors[name][1]()
        return {name: actors[name] for place, name in enumerate(meet) if not number or number >> 2 * place & 3}

    def _actors(self) -> dict[str, tuple[str, Work]]:
        one, two = self.paths["one"], self.paths["two"]
        first, acting, third = self.said("hello", "1"), self.said("act now", "2"), self.said("more", "3")
        edit = self.said("hello!", "1-edit", edits="1")
        return {
            "accept": ("one", lambda: self.accept(one, first)),
            "again": ("two", lambda: self.accept(two, first)),
            "accept2": ("one", lambda: self.accept(one, acting)),
            "accept3": ("two", lambda: self.accept(two, third)),
            "edit": ("one", lambda: self.accept(one, edit)),
            "new": ("one", lambda: self.accept(one, self.said("/new", "n"))),
            "stop": ("two", lambda: self.accept(two, self.said("/stop", "s"))),
            "work": ("one", lambda: self.work(one, Lane.CHAT, 4)),
            "work2": ("two", lambda: self.work(two, Lane.CHAT, 4)),
            "send": ("one", lambda: self.send(one, 3)),
            "send2": ("two", lambda: self.send(two, 3)),
            "recover": ("two", lambda: self.recover(two)),
            "beat": ("one", one.worker.beat),
            "tree": ("one", lambda: self.tree(one)),
            "node": ("one", lambda: self.work(one, Lane.AGENTS, 5)),
            "node2": ("two", lambda: self.work(two, Lane.AGENTS, 5)),
            "cancel": ("two", lambda: self.cancel(two)),
        }

    def said(self, text: str, id: str, **more: Any) -> Inbound:
        inbound = message(text, chat=self.name, id=f"{self.name}-{id}", **more)
        return replace(inbound, edits=f"{self.name}-{inbound.edits}") if inbound.edits else inbound

    async def accept(self, path: MessagePath, inbound: Inbound) -> None:
        """As a channel does it: until it is acknowledged."""
        if inbound.edits is None:
            self.unacknowledged[inbound.platform_id] = inbound
        arrival = Arrival(_entry_id((*_chat(inbound), inbound.platform_id)), inbound, inbound.sent_at)
        await tried(lambda: path.inbound._store(arrival, None))
        self.unacknowledged.pop(inbound.platform_id, None)

    async def deliver_again(self) -> None:
        for inbound in list(self.unacknowledged.values()):
            await self.accept(self.paths["one"], inbound)

    async def work(self, path: MessagePath, lane: Lane, rounds: int = 1) -> None:
        worker = replace(
            path.worker, lanes=(lane,), runners={kind: path.runners[kind] for kind in KINDS}, ended=nothing
        )
        worker.limit(1)

        async def claim() -> None:
            async with asyncio.TaskGroup() as group:
                await worker._claim(group)

        for _ in range(rounds):
            await tried(claim)

    async def send(self, path: MessagePath, rounds: int = 1) -> None:
        async def start() -> None:
            async with asyncio.TaskGroup() as group:
                await path.outbound._start_due(group)

        for _ in range(rounds):
            await tried(start)

    async def recover(self, path: MessagePath) -> None:
        """The leases of all runs expire, as those of a process that was frozen."""

        async def expire() -> None:
            async with path.database.connection() as conn:
                await conn.execute(EXPIRED)

        await tried(expire)
        await path.worker.beat()

    async def tree(self, path: MessagePath) -> None:
        request = ProgramRequest("main", f"root {self.name}", Label.OWNER, "key", key=self.name)
        await tried(lambda: path.tree_control.start(request))

    async def cancel(self, path: MessagePath) -> None:
        """Cancel the tree as soon as it is there, if it is there soon."""

        async def cancel() -> bool:
            async with path.database.connection() as conn:
                root = await conn.fetchval(ROOT)
            if root is not None:
                await path.tree_control.cancel(str(root))
            return root is not None

        for _ in range(TRIES):
            if await tried(cancel):
                break


async def nothing() -> None:
    """Upkeep after a run, which depends on the time of day."""


async def tried(work: Callable[[], Awaitable[T]]) -> T:
    """Repeat what an outage broke off, as every caller of the product does."""
    outages: list[Exception] = []
    while len(outages) < TRIES:
        try:
            result = await work()
        except* TryAgainLater as outage:
            outages.append(outage)
        else:
            return result
    raise ExceptionGroup("an outage without an end", outages[-1:])
