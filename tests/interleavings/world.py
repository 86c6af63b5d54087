"""Two processes of the product on one Postgres, in which the actors of a schedule meet."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from uuid import UUID

import asyncpg

from gateway.domain.conversation.model import Prompt, Reply
from gateway.domain.conversation.tools import AnyTool, Caller, Effect, Labelled, Tool, ToolClass
from gateway.domain.ids import InstanceId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.store.connection.pool import Database
from gateway.store.work import tasks
from gateway.tools import Services
from tests.fakes.channel import FakeChannel
from tests.flow.path import FakeModel, MessagePath, asked, build, call, results, said
from tests.flow.trees.test_trees import is_node, subtasks, task_of
from tests.flow.workshop import Word
from tests.interleavings.chat import EXPIRED, KINDS, LATE, TRIES, Chat, tried
from tests.interleavings.families import FAMILIES, Family
from tests.interleavings.invariants import Invariants, Violation
from tests.interleavings.scheduler import CURRENT, Draws, Process, Scheduler, SteppedDatabase
from tests.interleavings.shared_files import SharedFiles

NAMES = ("one", "two")
DUE = "update tasks set run_at = now(), held_until = null where status = 'pending' and kind = any($1)"
DELIVERABLE = "update outbox set run_at = now() where state = 'pending'"
LEFT = (
    "update tasks set status = 'cancelled', open_children = 0, worker = null, lease_until = null"
    " where status not in ('completed', 'failed', 'cancelled')",
    "update outbox set state = 'failed' where state in ('pending', 'sending')",
    "update inbox set handled_at = now() where handled_at is null",
    "update reviews set state = 'closed' where state = 'open'",
)
BUSY = """select exists (select from tasks where kind = any($1)
                         and status not in ('completed', 'failed', 'cancelled'))
          or exists (select from reviews where state = 'open')"""


def answer(prompt: Prompt) -> Reply:
    """A root splits into what its words say; all others do once what they are asked to."""
    if results(prompt):
        return said("done")
    if is_node(prompt):
        first, *others = task_of(prompt).split()
        if others:
            return subtasks(*[("main", each) for each in others])
        if first == "ask":
            return said("", call("request_human_review", question="go on?"))
        return _act(first)
    return _act(asked(prompt))


def _act(words: str) -> Reply:
    wanted = next((each for each in ("act", "pay") if each in words.split()), None)
    return said("", call(wanted, text="x")) if wanted else said(f"re: {words}")


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

        async def pay(_word: Word, caller: Caller) -> Labelled:
            self.invariants.paid.append(f"{caller.task}/{caller.ordinal}")
            return Labelled({"paid": "it"}, Label.UNTRUSTED)

        return (
            Tool("act", "Acts.", Word, act, Effect.ONCE, 1.0, kind=ToolClass.READ),
            Tool("pay", "Pays.", Word, pay, Effect.ONCE, 1.0, kind=ToolClass.IRREVERSIBLE),
        )

    async def sleep(self, _seconds: float) -> None:
        """Time passes: what died is started again, and its runs are free."""
        for database, path in zip(self.stepped.values(), self.paths.values(), strict=True):
            if database.process.dead:
                async with self.database.connection() as conn:
                    await tasks.died(conn, path.instance)

    async def explore(self, draws: Draws, *, faults: int, families: Sequence[Family] = FAMILIES) -> list[str]:
        """Run one schedule and what it leaves; returns its statements. Raises `Violation`."""
        self.number += 1
        family = families[draws.next() % len(families)]
        self.invariants = Invariants(self.monitor)
        self.seed = Random(0)
        self.paths.clear()  # what a process remembers would make a schedule depend on those before it
        await self.monitor.execute("update sessions set ended_by_person = false")  # the next chat would begin with it
        paths = {name: await self.path(name) for name in NAMES}
        await self.invariants.begin()
        scheduler = Scheduler(draws, self.monitor, self.invariants.check, faults, self.invariants.deadlocks)
        for database in self.stepped.values():
            database.scheduler = scheduler
        name = f"c{self.number}"
        files = SharedFiles(self.workspace / name, name, paths["one"].people.owner.id, self.stepped)
        self.invariants.files = files.check
        chat = Chat(name, family, paths, self.invariants.last_review, files)
        taking_part = await chat.begin(draws)
        self.invariants.day_usd = chat.day_usd
        for name, (process, work) in taking_part.items():
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
        chat.configure()
        for database in self.stepped.values():
            database.process.dead = False
        for path in chat.paths.values():
            await path.command_runner.resume()
        await chat.deliver_again()
        for _ in range(TRIES):
            for statement in (EXPIRED, LATE):
                await self.monitor.execute(statement)
            await chat.paths["one"].worker.beat()
            for path in chat.paths.values():
                await path.questions.look()
                for lane in (Lane.CHAT, Lane.AGENTS):
                    await self.monitor.execute(DUE, KINDS)
                    await chat.work(path, lane)
                await self.monitor.execute(DELIVERABLE)
                await chat.send(path)
            if not await self.monitor.fetchval(BUSY, KINDS):
                break
        await chat.send(chat.paths["one"])
        await chat.files.settle(tried)
        await self.invariants.check_end(chat.name)
