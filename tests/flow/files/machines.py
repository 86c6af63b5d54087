"""Machines that share the files of one person: a folder each, one database, one bucket."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.domain.principals import Label
from gateway.flow.files.replica import Missing, Replica, SyncResult
from gateway.flow.labels import owner_labels
from gateway.net.addresses import Rules
from gateway.net.object_store import ObjectStore, StoreAddress
from gateway.store.files import contents
from gateway.workspace.files.tree import Workspace
from gateway.workspace.locks import LockKeeper, LockWatch, OwnerEdits
from gateway.workspace.sync.folder import StateFile
from gateway.workspace.sync.plan import Drop, Pull, Push, Retract
from tests.fakes.s3 import settings
from tests.store.world import World


@dataclass
class Machine:
    """Its folder, and what keeps it the same as those of others."""

    world: World
    root: Path
    workspace: Workspace
    locks: LockWatch
    replica: Replica
    tampered: list[str] = field(default_factory=list)

    async def sync(self, missing: Missing = Missing.ASK) -> SyncResult:
        return await self.replica.sync(missing)

    def write(self, path: str, text: str | bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(text if isinstance(text, bytes) else text.encode())

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def files(self) -> dict[str, str]:
        found = (path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())
        return {str(path.relative_to(self.root)): path.read_text("utf-8", "replace") for path in found}

    async def label(self, path: str) -> Label:
        return await self.workspace.labels.of(path, hashlib.sha256((self.root / path).read_bytes()).hexdigest())

    async def recorded(self, path: str) -> Label | None:
        """By the database alone."""
        name = hashlib.sha256((self.root / path).read_bytes()).hexdigest()
        async with self.world.database.connection() as conn:
            return await contents.label(conn, self.world.principal, name)


@dataclass
class Machines:
    """Makes them."""

    world: World
    folder: Path
    endpoint: str
    bucket: str
    made: list[Machine] = field(default_factory=list)

    def __call__(self, name: str) -> Machine:
        root, data = self.folder / name / "workspace", self.folder / name
        root.mkdir(parents=True, exist_ok=True)
        database, owner = self.world.database, self.world.principal
        workspace = Workspace(root, owner_labels(database, owner))
        tampered = list[str]()

        async def tell(paths: object) -> None:
            tampered.extend(paths)  # type: ignore[call-overload]

        locks = LockWatch(workspace, LockKeeper(root, data / "replaced", OwnerEdits(data)), tell)
        address = StoreAddress.of(settings(self.endpoint, self.bucket))
        store = ObjectStore(address, lambda: Rules.of(["127.0.0.1"]))
        state = StateFile.of(data / "sync", root, str(owner), address.place)
        machine = Machine(
            self.world, root, workspace, locks, Replica(database, owner, workspace, locks, store, state), tampered
        )
        self.made.append(machine)
        return machine

    def close(self) -> None:
        for machine in self.made:
            machine.replica.store.close()


@contextmanager
def machines_of(world: World, folder: Path, endpoint: str, bucket: str) -> Iterator[Machines]:
    machines = Machines(world, folder, endpoint, bucket)
    yield machines
    machines.close()


def pushed(done: SyncResult) -> list[str]:
    return [each.path for each in done.actions if isinstance(each, Push)]


def pulled(done: SyncResult) -> list[str]:
    return [each.path for each in done.actions if isinstance(each, Pull)]


def retracted(done: SyncResult) -> list[str]:
    return [each.path for each in done.actions if isinstance(each, Retract)]


def deleted(done: SyncResult) -> list[str]:
    return [each.path for each in done.actions if isinstance(each, Drop)]


async def settle(*machines: Machine) -> None:
    """Until nothing is left to do anywhere."""
    for _ in range(6):
        done = [await machine.sync() for machine in machines]
        if not any(each.actions for each in done):
            return
    raise AssertionError("they never agree")
