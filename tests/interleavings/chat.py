"""The actors: the product's own accept, commands, turns, trees, answers, senders and upkeep.

No journal: its statements are not explored here. Nothing is erased, as that needs the gateway stopped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias, TypeVar, cast
from uuid import uuid5

from gateway.agent.limits import Limits
from gateway.domain.conversation.inbound import Arrival, Inbound
from gateway.domain.conversation.model import Highest
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import EntryId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.flow.inbound.acceptance import _ENTRIES, _chat
from gateway.flow.trees.control import ProgramRequest
from gateway.web.http.errors import Refused
from gateway.web.screens.conversations import delete
from tests.flow.path import FakeCurrent, MessagePath, message
from tests.interleavings.families import Family
from tests.interleavings.scheduler import Draws
from tests.interleavings.shared_files import SharedFiles, step

KINDS = ("chat", "agent", "approval")
EXPIRED = "update tasks set lease_until = now() - interval '1 s' where status = 'running'"
LATE = "update reviews set expires_at = now() - interval '1 s' where state = 'open'"
ROOT = """select id from tasks where kind = 'agent' and parent_id is null
          and status not in ('completed', 'failed', 'cancelled') limit 1"""
ASKED = "select 'A' || max(id) from reviews where id > $1 and (state = 'open' or $2)"
COSTS = 0.001
T = TypeVar("T")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
TRIES = 12


@dataclass
class Chat:
    """A chat of its own for each schedule, and a tree of tasks."""

    name: str
    family: Family
    paths: dict[str, MessagePath]
    reviews: int
    """The last question of the schedules before."""
    files: SharedFiles
    unacknowledged: dict[str, Inbound] = field(default_factory=dict)
    day_usd: float | None = None
    """The limit of the day's money."""

    async def begin(self, draws: Draws) -> dict[str, tuple[str, Work]]:
        """Who takes part, and in which process, after those of the prelude have acted."""
        actors, number = self._actors(), draws.next()
        await self.prepare()
        for name in self.family.before:
            await actors[name][1]()
        meet = enumerate(self.family.meet)
        return {name: actors[name] for place, name in meet if not number or number >> 2 * place & 3}

    async def prepare(self) -> None:
        """Limit the money to what is spent and what the family has."""
        one = self.paths["one"]
        [(spent,)] = await one.rows("select coalesce(sum(cost_usd), 0) from task_steps")
        await one.rows("delete from meta where key like 'budget:%' returning 1")
        self.day_usd = None if self.family.day_usd is None else spent + self.family.day_usd
        self.configure()

    def configure(self) -> None:
        """Set up each process as the family wants it."""
        for path in self.paths.values():
            path.model.most = Highest(COSTS)
            cast(FakeCurrent, path.current).bounds = Limits(day_usd=self.day_usd)

    def _actors(self) -> dict[str, tuple[str, Work]]:
        one, two = self.paths["one"], self.paths["two"]
        first, acting, third = self.said(self.family.words, "1"), self.said("act now", "2"), self.said("more", "3")
        edit = self.said("hello!", "1-edit", edits="1")
        return {
            "accept": ("one", lambda: self.accept(one, first)),
            "again": ("two", lambda: self.accept(two, first)),
            "accept2": ("one", lambda: self.accept(one, acting)),
            "accept3": ("two", lambda: self.accept(two, third)),
            "edit": ("one", lambda: self.accept(one, edit)),
            "new": ("one", lambda: self.accept(one, self.said("/new", "n"))),
            "stop": ("two", lambda: self.accept(two, self.said("/stop", "s"))),
            "more": ("two", lambda: self.accept(two, self.said("/budget more", "b"))),
            "approve": ("one", lambda: self.answer(one, "/approve")),
            "approve2": ("two", lambda: self.answer(two, "/approve")),
            "deny": ("two", lambda: self.answer(two, "/deny")),
            "expire": ("one", lambda: self.expire(one)),
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
            "delete": ("two", lambda: self.delete(two)),
            "share": ("one", self.share),
            "change": ("one", lambda: self.change("a", "one")),
            "change2": ("two", lambda: self.change("b", "two")),
            "type": ("one", lambda: self.change("a", "one", sync=False)),
            "remove": ("two", lambda: self.remove("c", "two")),
            "sweep": ("two", lambda: self.sweep("two")),
        }

    def said(self, text: str, id: str, **more: Any) -> Inbound:
        inbound = message(text, chat=self.name, id=f"{self.name}-{id}", **more)
        return replace(inbound, edits=f"{self.name}-{inbound.edits}") if inbound.edits else inbound

    async def accept(self, path: MessagePath, inbound: Inbound) -> None:
        """As a channel does it: until it is acknowledged."""
        if inbound.edits is None:
            self.unacknowledged[inbound.platform_id] = inbound
        key = "\n".join((*_chat(inbound), inbound.platform_id))
        arrival = Arrival(EntryId(uuid5(_ENTRIES, key)), inbound, inbound.sent_at)
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
        words = self.family.words if self.family.words.startswith("root") else "root left right"
        request = ProgramRequest("main", words, Label.OWNER, "key", self.family.tree_usd, key=self.name)
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

    async def answer(self, path: MessagePath, command: str) -> None:
        """Answer the open question as soon as there is one, if there is one soon; else the last one."""
        for left in reversed(range(TRIES)):
            if which := await tried(partial(self._asked, path, not left)):
                await self.accept(path, self.said(f"{command} {which}", f"{command}-{path.instance}"))
                break

    async def _asked(self, path: MessagePath, any: bool) -> str | None:
        async with path.database.connection() as conn:
            name: str | None = await conn.fetchval(ASKED, self.reviews, any)
        return name

    async def expire(self, path: MessagePath) -> None:
        """The time of all questions is up, and the gateway looks."""

        async def pass_time() -> None:
            async with path.database.connection() as conn:
                await conn.execute(LATE)

        await tried(pass_time)
        await tried(path.questions.look)

    async def delete(self, path: MessagePath) -> None:
        """Delete the conversation on the page, unless it is being answered."""
        site = SimpleNamespace(database=path.database, owner=path.people.owner, chat=SimpleNamespace(live=path.live))

        async def find_and_delete() -> None:
            async with path.database.connection() as conn:
                sql = "select session_id from addresses where chat = $1"
                session = await conn.fetchval(sql, self.name)
            with suppress(Refused):
                await delete(cast(Any, site), cast(Any, SimpleNamespace(id=session)))

        await tried(find_and_delete)

    async def share(self) -> None:
        """All machines have the same text."""
        self.files.write(self.files.machine("a", "one"), f"{self.name} 0")
        for name, process in (("a", "one"), ("b", "two"), ("c", "two")):
            await self.files.sync(self.files.machine(name, process))

    async def change(self, name: str, process: str, *, sync: bool = True) -> None:
        """A person writes twice, and the machine synchronises."""
        machine = self.files.machine(name, process)
        for number in (1, 2):
            await step(self.files.databases[process], "write")
            self.files.write(machine, f"{self.name} {name}{'' if sync else ' typed'} {number}")
            if sync:
                await tried(partial(self.files.sync, machine))

    async def remove(self, name: str, process: str) -> None:
        """A person deletes what the machine has, twice, and the machine synchronises."""
        machine = self.files.machine(name, process)
        for _ in range(2):
            await step(self.files.databases[process], "remove")
            self.files.remove(machine)
            await tried(partial(self.files.sync, machine))

    async def sweep(self, process: str) -> None:
        for _ in range(2):
            await tried(partial(self.files.sweep, process))


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
