"""Synchronises workspaces with an object store: at the start, at intervals, after runs and around agents' tasks.

Once a day it deletes objects that no path refers to.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path
from uuid import UUID

import structlog

from gateway.config.model import WorkspaceStore
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.domain.ids import PrincipalId
from gateway.domain.work.tasks import backoff
from gateway.flow.engine import Engine
from gateway.flow.files.replica import Replica, SyncResult
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.journal.places import principal_folders
from gateway.net.addresses import Rules
from gateway.net.object_store import ObjectStore, StoreAddress
from gateway.store.connection.pool import Database
from gateway.store.files import file_map
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.locks import LockWatch
from gateway.workspace.sync.folder import StateFile

MAX_SWEPT = 10_000
"""The limit of one sweep."""
_NAME = re.compile(r"[0-9a-f]{64}")


async def sweep(database: Database, store: ObjectStore, before: datetime) -> int:
    """Delete unused objects stored before this time; return how many. Raises `TryAgainLater`."""
    total = await _delete(database, store, [])  # the rest of an interrupted sweep
    async for names in store.names(before):
        total += await _delete(database, store, [name for name in names if _NAME.fullmatch(name)])
        if total >= MAX_SWEPT:
            break
    return total


async def _delete(database: Database, store: ObjectStore, found: list[str]) -> int:
    place = store.address.place
    swept = await database.run(partial(file_map.begin_sweep, place=place, found=found))
    for name in swept:
        await store.delete(name)
    await database.run(partial(file_map.end_sweep, place=place, gone=swept))
    return len(swept)


SYNC_FOLDER = "sync"
"""The folder in the data folder for the last state on which each folder and the map agreed."""
BATCH_SECONDS = 5.0
"""Several runs that end within this time are synchronised together."""
SWEEP_SECONDS = 86_400.0
KEPT = timedelta(days=7)
"""How long an object stays in the store after the last path that referred to it is gone."""
MAX_PROBLEMS_SHOWN = 3

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class FileSync:
    """Synchronises all people's files on this machine. `at_home` says whether the workspace is on this machine.

    Only `before_run` raises: an unavailable store delays the files and nothing else.
    """

    engine: Engine
    workspaces: Workspaces
    locks_of: Callable[[PrincipalId], LockWatch]
    data: Path
    settings: Callable[[], WorkspaceStore]
    rules: Callable[[], Rules]
    at_home: Callable[[], bool]
    tell_owner: Callable[[str], Awaitable[None]]
    works: bool = field(default=False, init=False)
    """Whether the last attempt worked; a machine that hasn't reached the store must not count its files as shared."""
    state: str = field(default="none yet", init=False)
    _store: ObjectStore | None = field(default=None, init=False)
    _replicas: dict[PrincipalId, Replica] = field(default_factory=dict, init=False)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _wanted: bool = field(default=True, init=False)
    _due: float = field(default=0.0, init=False)
    _last: float = field(default=0.0, init=False)
    _swept: float = field(default=-inf, init=False)
    _failures: int = field(default=0, init=False)
    _told: dict[PrincipalId, Mapping[str, str]] = field(default_factory=dict, init=False)

    @property
    def on(self) -> bool:
        """Whether a store is configured."""
        return self.settings().url is not None

    @property
    def shared(self) -> bool:
        """Whether every machine has the files."""
        return self.on and self.works

    def want(self) -> None:
        """Note that files may have changed, so that `look` synchronises soon."""
        self._wanted = True

    async def look(self) -> datetime | None:
        """Synchronise if it is due; return when it is due next, None without a store."""
        if not self.on:
            self.works = False
            return None
        now = self.engine.clock.monotonic()
        due = min(self._due, self._last + BATCH_SECONDS if self._wanted and not self._failures else self._due)
        if now >= due:
            self._wanted = False
            await self._all()
            await self._sweep()
            self._last = self.engine.clock.monotonic()
            pause = backoff(self._failures) if self._failures else self.settings().every.total_seconds()
            due = self._due = self._last + pause
        return self.engine.clock.now() + timedelta(seconds=max(0.0, due - self.engine.clock.monotonic()))

    async def before_run(self, principal: PrincipalId) -> None:
        """Fetch the changes of other machines; raises `TryAgainLater` if that fails and the files aren't at home."""
        if self.on and not await self._tried([principal]) and not self.at_home():
            raise TryAgainLater(f"the files can't be fetched: {self.state}")

    async def after_turn(self, principal: PrincipalId) -> None:
        """Send the run's changes to other machines, before they learn that it has ended."""
        if self.on:
            await self._tried([principal])

    def close(self) -> None:
        """End all connections."""
        if self._store:
            self._store.close()

    async def _sweep(self) -> None:
        """Sweep the store once a day, on the machine with the files."""
        if not self.works or not self.at_home() or self.engine.clock.monotonic() < self._swept + SWEEP_SECONDS:
            return
        try:
            objects = await sweep(self.engine.database, self._stored(), self.engine.clock.now() - KEPT)
            log.info("files.swept", objects=objects)
            self._swept = self.engine.clock.monotonic()
        except TryAgainLater as error:
            self._failed(str(error))

    async def _all(self) -> None:
        try:
            place = StoreAddress.of(self.settings()).place
            others = await asyncio.to_thread(principal_folders, self.workspaces.others)
            here = [self.engine.people.owner.id, *(PrincipalId(UUID(folder.name)) for folder in others)]
            everyone = await self.engine.database.read(lambda conn: file_map.people(conn, place, here))
        except (TryAgainLater, OwnerMustAct) as error:
            self._failed(str(error))
            return
        await self._tried(everyone)

    async def _tried(self, people: Collection[PrincipalId]) -> bool:
        async with self._one:
            try:
                wrong = [why for each in people if (why := await self._synchronised(each))]
            except (TryAgainLater, OwnerMustAct) as error:
                self._failed(str(error))
            except Exception as error:
                log.exception("files.sync_broken")
                self._failed(f"{type(error).__name__}; the log says more")
            else:
                if wrong:
                    self._failed(wrong[0])
                else:
                    self._succeeded()
        return self.works

    async def _synchronised(self, principal: PrincipalId) -> str:
        """Synchronise one person's folder and return its problem, or ""; other folders are still synchronised."""
        try:
            await self._told_of(principal, await self._replica(principal).sync())
        except WorkspaceError as error:
            return str(error)
        return ""

    def _failed(self, why: str) -> None:
        self._failures += 1
        if self.works or self._failures == 1:
            log.warning("files.not_synchronised", error=why)
        self.works, self.state = False, f"failed at {self.engine.clock.now():%Y-%m-%d %H:%M:%S} UTC ({why})"

    def _succeeded(self) -> None:
        if self._failures:
            log.info("files.synchronised_again")
        problems = [
            f"{path}: {why}" for each in self._told.values() for path, why in list(each.items())[:MAX_PROBLEMS_SHOWN]
        ]
        left = f"; left alone: {'; '.join(problems)}" if problems else ""
        self._failures, self.works = 0, True
        self.state = f"the same everywhere at {self.engine.clock.now():%Y-%m-%d %H:%M:%S} UTC{left}"

    async def _told_of(self, principal: PrincipalId, done: SyncResult) -> None:
        if done.actions:
            log.info("files.synchronised", principal=str(principal), files=len(done.actions))
        if done.problems.keys() != self._told.get(principal, {}).keys() and done.problems:
            log.warning("files.left_alone", principal=str(principal), files=dict(list(done.problems.items())[:20]))
        self._told[principal] = done.problems
        if done.beside and self.engine.people.is_owner(principal):
            kept = ", ".join(done.beside)
            await self.tell_owner(
                f"Two machines changed the same file at once. The version that lost is kept as {kept}."
            )

    def _replica(self, principal: PrincipalId) -> Replica:
        store = self._stored()
        workspace, known = self.workspaces.of(principal), self._replicas.get(principal)
        if known is None or known.workspace is not workspace:
            workspace.root.mkdir(parents=True, exist_ok=True)  # a worker starts without one
            state = StateFile.of(self.data / SYNC_FOLDER, workspace.root, str(principal), store.address.place)
            database, locks, failpoints = self.engine.database, self.locks_of(principal), self.engine.failpoints
            known = Replica(database, principal, workspace, locks, store, state, failpoints)
            self._replicas[principal] = known
        return known

    def _stored(self) -> ObjectStore:
        """The store as configured now."""
        address = StoreAddress.of(self.settings())
        if self._store is None or self._store.address != address:
            self.close()
            self._store, self._replicas = ObjectStore(address, self.rules), {}
        return self._store
