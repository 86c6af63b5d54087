"""Runs actors one SQL statement at a time, in a random order; an actor that waits for a lock waits in Postgres.

An actor is a task. It is parked before each statement, runs it when it is chosen, and goes on to its next one. The
next choice is made when each actor is parked, is over or waits for a lock that another transaction holds, so that the
same draws lead to the same schedule.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import Any

import asyncpg

from gateway.store.connection.pool import Connection, Database

LOOK_AFTER = 0.003
"""Seconds that a statement may take before somebody looks whether it waits for a lock."""
IDLE_AFTER = 0.3
"""Seconds after which an actor that neither asks nor waits for the database counts as waiting for another one."""
PACES = (1, 4, 16)
LONGEST = 2_000
"""Statements of a schedule; more are a circle."""
WAITING = "select distinct pid from pg_locks where not granted and pid = any($1)"
CURRENT: "ContextVar[Actor | None]" = ContextVar("actor", default=None)


class Fate(Enum):
    """The fate of a statement."""

    RUNS = auto()
    LOST = auto()
    """Its connection is lost before it."""
    UNHEARD = auto()
    """It runs, and its reply is lost with the connection."""
    DEATH = auto()
    """Its process dies before it."""


class Died(BaseException):
    """The process is dead: no code of it goes on."""


@dataclass(eq=False)
class Process:
    """A process of the product; after its death it runs no statement."""

    name: str
    dead: bool = False


@dataclass(eq=False)
class Parked:
    """A statement that waits to be chosen."""

    actor: "Actor"
    statement: str
    chosen: "asyncio.Future[Fate]"


@dataclass(eq=False)
class Actor:
    """One of those that act at once."""

    name: str
    process: Process
    pace: int
    """How often it is chosen, compared with others: one that is slow meets the others in all of their states."""
    task: "asyncio.Task[None]" = field(init=False)
    parked: list[Parked] = field(default_factory=list)
    pid: int | None = None
    uuids: Random = field(default_factory=Random)

    @property
    def over(self) -> bool:
        return self.task.done()


class Draws:
    """Numbers that decide a schedule: from a seed, or a list after which all are 0, which means: no fault, in order."""

    def __init__(self, source: "int | list[int]") -> None:
        self.drawn: list[int] = []
        self._random = Random(source) if isinstance(source, int) else None
        self._given: Iterator[int] = iter(()) if isinstance(source, int) else iter(source)

    def next(self) -> int:
        number = next(self._given, 0) if self._random is None else self._random.randrange(1, 1 << 20)
        self.drawn.append(number)
        return number


@dataclass
class Scheduler:
    """Chooses among what is parked. `committed` is called after each statement that may have changed what all see."""

    draws: Draws
    monitor: asyncpg.Connection
    committed: Callable[[], Awaitable[None]]
    faults: int
    """Losses and deaths at most."""
    deadlocks: list[str]
    """The statements that Postgres ended because transactions waited for each other."""
    actors: list[Actor] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, name: str, process: Process, work: Coroutine[Any, Any, None]) -> Actor:
        actor = Actor(name, process, PACES[self.draws.next() % len(PACES)], uuids=Random(name))

        async def act() -> None:
            CURRENT.set(actor)
            try:
                await work
            except BaseException:  # alone or in a group
                if not process.dead:
                    raise

        actor.task = asyncio.create_task(act(), name=name)
        actor.task.add_done_callback(lambda _: self.changed.set())
        self.actors.append(actor)
        return actor

    async def park(self, actor: Actor, process: Process, statement: str) -> Fate:
        """Wait until this statement is chosen."""
        if process.dead:
            raise Died
        parked = Parked(actor, statement, asyncio.get_running_loop().create_future())
        actor.parked.append(parked)
        self.changed.set()
        try:
            fate = await parked.chosen
        finally:
            if parked in actor.parked:  # it was cancelled
                actor.parked.remove(parked)
        if fate is Fate.DEATH or process.dead:
            raise Died
        return fate

    async def run(self) -> None:
        """Run all actors to their end; raises the first error of one."""
        while await self._settled():
            ready = [parked for actor in self.actors if not actor.over for parked in actor.parked]
            if not ready:
                await asyncio.sleep(LOOK_AFTER)  # a deadlock, which Postgres ends
                continue
            number = self.draws.next()
            paced = [parked for parked in ready for _ in range(parked.actor.pace)]
            chosen, fate = paced[number % len(paced)], self._fate(number // len(paced))
            chosen.actor.parked.remove(chosen)
            statement = " ".join(chosen.statement.split())[:90]
            self.trace.append(f"{chosen.actor.name:>10} {'' if fate is Fate.RUNS else fate.name + ' '}{statement}")
            assert len(self.trace) < LONGEST, "the actors come to no end"
            if fate is Fate.DEATH:
                self._kill(chosen.actor.process)
            if not chosen.chosen.done():
                chosen.chosen.set_result(fate)
            await self._settled()
            if statement == "commit" or not self._in_transaction(chosen):
                await self.committed()
        for actor in self.actors:
            if (error := actor.task.exception()) is not None:
                raise error

    async def abandon(self) -> None:
        """End actors that a violation left."""
        for actor in self.actors:
            self._kill(actor.process) if not actor.over else None
            actor.task.cancel()
        await asyncio.gather(*(actor.task for actor in self.actors), return_exceptions=True)
        CURRENT.set(None)

    def _in_transaction(self, parked: Parked) -> bool:
        return parked.statement.startswith("  ")

    def _fate(self, number: int) -> Fate:
        """A fault in one of sixty statements, until there were enough."""
        if not self.faults or number % 60 != 7:
            return Fate.RUNS
        self.faults -= 1
        return (Fate.LOST, Fate.UNHEARD, Fate.DEATH)[number // 60 % 3]

    def _kill(self, process: Process) -> None:
        process.dead = True
        for actor in self.actors:
            if actor.process is process:
                for parked in actor.parked:
                    parked.chosen.set_result(Fate.DEATH)
                actor.parked.clear()

    async def _settled(self) -> bool:
        """Wait until nobody can go on without being chosen; False when all are over."""
        waited = 0.0
        while True:
            self.changed.clear()
            busy = [actor for actor in self.actors if not actor.over and not actor.parked]
            if not busy:
                return any(not actor.over for actor in self.actors)
            try:
                async with asyncio.timeout(LOOK_AFTER):
                    await self.changed.wait()
                continue
            except TimeoutError:
                waited += LOOK_AFTER
            pids = [actor.pid for actor in busy if actor.pid is not None]
            waiting = {row["pid"] for row in await self.monitor.fetch(WAITING, pids)} if pids else set()
            if not self.changed.is_set() and (waiting >= {actor.pid for actor in busy} or waited > IDLE_AFTER):
                return True


class SteppedDatabase(Database):
    """A database on which each statement is a step of the schedule."""

    scheduler: Scheduler
    process: Process

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[Connection]:
        async with super()._held() as connection:
            stepped: Any = SteppedConnection(connection, self)
            yield stepped


class SteppedConnection:
    """A connection that asks before each statement. A transaction begins when its first statement is chosen."""

    def __init__(self, connection: Any, database: SteppedDatabase) -> None:
        self._connection, self._database, self._inside = connection, database, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def _step(self, statement: str, run: Callable[[], Awaitable[Any]]) -> Any:
        process, actor = self._database.process, CURRENT.get()
        if actor is None:
            return await run()
        fate = await self._database.scheduler.park(actor, process, f"{'  ' * bool(self._inside)}{statement}")
        if fate is Fate.LOST:
            self._connection.terminate()
        actor.pid = None if fate is Fate.LOST else self._connection.get_server_pid()
        try:
            result = await run()
        except asyncpg.DeadlockDetectedError:
            self._database.scheduler.deadlocks.append(statement)
            raise
        finally:
            actor.pid = None
        if fate is Fate.UNHEARD:
            self._connection.terminate()
            raise ConnectionResetError("the reply was lost")
        if process.dead:
            raise Died
        return result

    async def execute(self, query: str, *args: Any, **more: Any) -> Any:
        return await self._step(query, lambda: self._connection.execute(query, *args, **more))

    async def executemany(self, query: str, args: Any, **more: Any) -> Any:
        return await self._step(query, lambda: self._connection.executemany(query, args, **more))

    async def fetch(self, query: str, *args: Any, **more: Any) -> Any:
        return await self._step(query, lambda: self._connection.fetch(query, *args, **more))

    async def fetchrow(self, query: str, *args: Any, **more: Any) -> Any:
        return await self._step(query, lambda: self._connection.fetchrow(query, *args, **more))

    async def fetchval(self, query: str, *args: Any, **more: Any) -> Any:
        return await self._step(query, lambda: self._connection.fetchval(query, *args, **more))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        own = self._connection.transaction()
        await own.start()
        self._inside += 1
        try:
            yield
        except BaseException:
            self._inside -= 1
            with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                await own.rollback()
            raise
        self._inside -= 1
        await self._step("commit" if not self._inside else "savepoint", own.commit)
