"""Machines that share a person's files, one for each actor, and what must become of every text that a person wrote.

The store is a dictionary, whose calls are steps of the schedule as statements are.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from gateway.domain.ids import PrincipalId
from gateway.flow.files.replica import Replica
from gateway.flow.files.sync import sweep
from gateway.flow.labels import owner_labels
from gateway.net.object_store import BadObject, StoreAddress, StoreDown
from gateway.store.files import file_map
from gateway.workspace.files.tree import Workspace
from gateway.workspace.sync.folder import StateFile
from tests.interleavings.invariants import Violation
from tests.interleavings.scheduler import CURRENT, Fate, Process, SteppedDatabase

NOTE = "note.md"
ROUNDS = 8


@dataclass
class Store:
    """Objects by name, for all machines; each machine has its own view, by its database."""

    address: StoreAddress
    objects: dict[str, bytes]
    database: SteppedDatabase

    async def put(self, name: str, file: Path) -> None:
        await self._step("put", lambda: self.objects.update({name: file.read_bytes()}))

    async def fetch(self, name: str, _size: int, to: Path) -> None:
        def copy() -> None:
            if name not in self.objects:
                raise BadObject(f"no object {name[:8]}")
            to.write_bytes(self.objects[name])

        await self._step("fetch", copy)

    async def delete(self, name: str) -> None:
        await self._step("delete", lambda: self.objects.pop(name, None))

    async def names(self, _before: datetime) -> AsyncIterator[list[str]]:
        found = list[str]()
        await self._step("list", lambda: found.extend(self.objects))
        yield found

    async def _step(self, what: str, work: Callable[[], object]) -> None:
        fate = await step(self.database, what)
        if fate is Fate.LOST:
            raise StoreDown("lost")
        work()
        if fate is Fate.UNHEARD:
            raise StoreDown("unheard")


async def step(database: SteppedDatabase, what: str) -> Fate:
    """The acts of an actor besides its statements, one at each of its turns."""
    actor = CURRENT.get()
    return await database.scheduler.park(actor, database.process, what) if actor else Fate.RUNS


@dataclass(frozen=True)
class MortalState(StateFile):
    """The state that a dead process can't save any more."""

    process: Process = field(kw_only=True)

    def save(self, base: Mapping[str, Any]) -> None:
        if not self.process.dead:
            StateFile.save(self, base)


@dataclass
class Machine:
    """A folder, in which a person writes and deletes, and its replica."""

    root: Path
    replica: Replica

    @property
    def text(self) -> str | None:
        note = self.root / NOTE
        return note.read_text() if note.exists() else None

    @property
    def texts(self) -> dict[str, str]:
        return {str(path.relative_to(self.root)): path.read_text() for path in self.root.rglob("*.md")}


@dataclass
class SharedFiles:
    """The machines of one schedule. `before` has the texts that each was written over, by its author who saw them."""

    folder: Path
    place: str
    owner: PrincipalId
    databases: Mapping[str, SteppedDatabase]
    objects: dict[str, bytes] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    before: dict[str, set[str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Texts that somebody replaced or deleted who saw them."""
    doubtful: set[str] = field(default_factory=set)
    """Texts of machines that were interrupted before they noted what they had: these may stay."""
    _shown: dict[str, str] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)

    def machine(self, name: str, process: str) -> Machine:
        """Its folder and state stay; what runs on it is as new as its process."""
        database, root = self.databases[process], self.folder / name / "workspace"
        known = self.machines.get(name)
        if known is None or known.replica.database is not database:
            root.mkdir(parents=True, exist_ok=True)
            workspace = Workspace(root, owner_labels(database, self.owner))
            state = MortalState(self.folder / name / "state.json", process=database.process)
            replica = Replica(database, self.owner, workspace, None, self._store(database), state, nobodys=frozenset())
            self.machines[name] = Machine(root, replica)
        return self.machines[name]

    def write(self, machine: Machine, text: str) -> None:
        """A person who sees what is there writes this instead."""
        self._replace(machine, text)
        draft = machine.root.parent / "draft"
        draft.write_text(text)
        draft.rename(machine.root / NOTE)

    def remove(self, machine: Machine) -> None:
        self._replace(machine, None)
        (machine.root / NOTE).unlink(missing_ok=True)

    async def sync(self, machine: Machine) -> bool:
        """Whether there was anything to do."""
        try:
            return bool((await machine.replica.sync()).actions)
        except BaseException:
            self.doubtful |= set(machine.texts.values())
            raise

    async def sweep(self, process: str) -> None:
        database = self.databases[process]
        await sweep(database, cast(Any, self._store(database)), datetime.now(UTC))

    async def check(self) -> list[str]:
        """The faults of the map, the store and the machines as they are now."""
        names = {sha256(text.encode()).hexdigest(): text for text in self.before}
        async with next(iter(self.databases.values()))._pool.acquire() as conn:
            rows = await file_map.rows(cast(Any, conn), self.owner, self.place)
        wrong = list[str]()
        for path, row in rows.items():
            if row.version < self._versions.get(path, 0):
                wrong.append(f"the version of {path} falls to {row.version}")
            self._versions[path] = row.version
            if row.content and row.content.sha256 not in self.objects:
                wrong.append(f"the store has nothing for {path}")
            elif row.content and path == NOTE:
                wrong += self._followed("the map", names[row.content.sha256])
        for name, machine in self.machines.items():
            if machine.text is not None:
                wrong += self._followed(name, machine.text)
        return wrong

    async def settle(self, tried: Callable[[Callable[[], Awaitable[bool]]], Awaitable[bool]]) -> None:
        """Synchronise all until nothing is left to do; every text that nobody replaced is everywhere, and no other."""
        names = list(self.machines)
        if names:
            await self.sweep("one")  # what an interrupted sweep has listed can't be shared before it is over
        for _ in range(ROUNDS):
            changed = [await tried(partial(self._sync_again, name)) for name in names]
            if not any(changed):
                break
        else:
            raise Violation("the machines never agree")
        if wrong := await self.check():
            raise Violation("; ".join(wrong))
        wanted = set(self.before) - self.gone
        for name, machine in self.machines.items():
            found = set(machine.texts.values())
            if lost := wanted - found:
                raise Violation(f"{name} has lost {lost}: {machine.texts}")
            if more := found - wanted - self.doubtful:
                raise Violation(f"{name} has again {more}: {machine.texts}")

    async def _sync_again(self, name: str) -> bool:
        return await self.sync(self.machine(name, "one"))

    def _followed(self, where: str, text: str) -> list[str]:
        """Nothing shows a text again that was written over in the one it shows."""
        last = self._shown.get(where, text)
        self._shown[where] = text
        older = text in self.before.get(last, ()) and text not in self.doubtful
        return [f"{where} had {last} and has the older {text}"] if older else []

    def _replace(self, machine: Machine, text: str | None) -> None:
        seen = machine.text
        older = {seen} | self.before[seen] if seen is not None else set[str]()
        self.gone |= older
        if text is not None:
            self.before[text] = older

    def _store(self, database: SteppedDatabase) -> Any:
        return Store(StoreAddress(self.place, "", "memory:", "", "", ""), self.objects, database)
