"""Keeps files and rows in order: makes checkpoints, removes what is over, restores files that somebody deletes."""

import asyncio
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog

from gateway.background.cpu.executor import run_alone
from gateway.config.data.files import read_regular, replace_regular
from gateway.config.data.instance import InstanceLock
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.domain.ids import MessageId, TaskId
from gateway.domain.json import Json
from gateway.domain.time import Clock
from gateway.store.connection.pool import Connection, Database
from gateway.store.transcript import messages
from gateway.store.work import retention
from gateway.workspace.checkpoints import jobs
from gateway.workspace.template import fill_new_workspace

CHECKPOINT_SECONDS = 600.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Checkpointing:
    """Makes checkpoints of `workspace` in `store`; a failure is logged, shown in `state`, and tried again next time."""

    database: Database
    workspace: Path
    store: Path
    clock: Clock
    state: str = "none yet"

    async def run(self) -> None:
        """Make one, and note how that went. Never raises."""
        self.state = f"{await self.make()} at {self.clock.now():%Y-%m-%d %H:%M:%S} UTC"

    async def make(self) -> str:
        """Make one now, if anything has changed, and say how that went. Never raises."""
        try:
            made = await self.keep("timer")
        except Exception as exc:
            log.warning("checkpoint.failed", error=str(exc), exc_info=not isinstance(exc, SupaclawError))
            return f"failed ({exc})"
        log.info("checkpoint.made", made=made)
        return "last"

    async def keep(self, reason: str) -> Json:
        """Make one now, if anything has changed; raises `SupaclawError`."""
        places = str(self.workspace), str(self.store)
        # It may take minutes, and a turn may wait for a file to be read.
        return await run_alone(jobs.commit, *places, await self._last_message(), reason, seconds=CHECKPOINT_SECONDS)

    async def _last_message(self) -> MessageId | None:
        """With the database away the files are kept all the same."""
        try:
            async with self.database.connection() as conn:
                return await messages.last_id(conn)
        except TryAgainLater as exc:
            log.warning("checkpoint.without_message", error=str(exc))
            return None


PAUSE_SECONDS = 0.2
"""Between two batches: others want the database, too."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """`keep` says for how long what is over is kept; None: for ever. `tasks` is the folder of the files of trees."""

    database: Database
    tasks: Path
    keep: Callable[[], timedelta | None]
    clock: Clock

    async def run(self) -> None:
        """Clear all that is old enough by now."""
        now = self.clock.now()
        await self.database.run(lambda tx: retention.note_sizes(tx, now.date()))
        if (keep := self.keep()) is None:
            return
        before, trees = now - keep, 0
        while over := await self.database.run(lambda tx: retention.clear_trees(tx, before)):
            trees += len(over)
            await asyncio.to_thread(self._remove, over)
            await asyncio.sleep(PAUSE_SECONDS)
        deliveries = await self._all(lambda tx: retention.clear_deliveries(tx, before))
        buttons = await self._all(lambda tx: retention.clear_buttons(tx, before))
        if trees or deliveries or buttons:
            log.info("retention.cleared", tasks=trees, deliveries=deliveries, buttons=buttons)

    async def _all(self, batch: Callable[[Connection], Awaitable[int]]) -> int:
        total = 0
        while count := await self.database.run(batch):
            total += count
            await asyncio.sleep(PAUSE_SECONDS)
        return total

    def _remove(self, over: Collection[TaskId]) -> None:
        """Of this folder alone: a link in its place leads nowhere."""
        for master in over if not self.tasks.is_symlink() else ():
            shutil.rmtree(self.tasks / str(master), ignore_errors=True)


POLL_DELETED_SECONDS = 2.0
_KEY_NAME = re.compile(r"journal|local-token|page-name|postgres\.[a-z_]+")


class Restorer:
    """Remembers what was there. What cannot be put back is told once."""

    def __init__(
        self, environment: Environment, hold: InstanceLock, tell_owner: Callable[[str], Awaitable[object]]
    ) -> None:
        self._data, self._workspace = environment.data, environment.workspace
        self._folder = os.stat(self._workspace)
        self._tell_owner = tell_owner
        self._keys: dict[Path, bytes] = {}
        self._told: dict[str, str] = {}
        self._work = {"gateway.pid": hold.keep, "keys": self._restore_keys, "workspace": self._restore_workspace}

    async def look(self) -> None:
        """Compare, and restore."""
        for name, restore in self._work.items():
            try:
                problem = await asyncio.to_thread(restore) or ""
            except (OSError, OwnerMustAct) as exc:
                problem = f"{name} of {self._data} cannot be restored: {exc}; move away what is in its place"
            if problem and problem != self._told.get(name):
                log.warning("files.deleted", problem=problem)
                await self._tell_owner(problem)
            self._told[name] = problem

    def _restore_keys(self) -> None:
        folder = self._data / "keys"
        here = [path for path in folder.iterdir() if _KEY_NAME.fullmatch(path.name)] if folder.is_dir() else []
        for path in {*self._keys, *here, self._data / "instance"}:
            text = b""
            with suppress(OSError):
                text = read_regular(path)
            if text:
                self._keys[path] = text
            elif path in self._keys:
                replace_regular(path, self._keys[path])
                log.warning("key.restored", path=str(path))

    def _restore_workspace(self) -> str | None:
        if self._workspace.is_dir() and os.path.samestat(os.stat(self._workspace), self._folder):
            return None
        fill_new_workspace(self._workspace)
        self._folder = os.stat(self._workspace)
        how = "`supaclaw checkpoints list` shows what can be restored"
        return f"The folder {self._workspace} was deleted or replaced while I was running; {how}."
