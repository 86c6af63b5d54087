"""Housekeeping: makes checkpoints, deletes old rows and logs, restores deleted files, reports restarts."""

import asyncio
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import structlog

from gateway.background.cpu.executor import run_alone
from gateway.commands import replace_session
from gateway.config.data.files import read_regular, replace_regular
from gateway.config.data.instance import InstanceLock, StartHistory, record_notice
from gateway.config.environment import Environment
from gateway.config.model import Retention as RetentionSettings
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.domain.ids import MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.json import Json
from gateway.domain.time import Clock
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.logs import prune
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses
from gateway.store.transcript import messages, sessions
from gateway.store.work import retention
from gateway.workspace.checkpoints import jobs
from gateway.workspace.template import fill_new_workspace

CHECKPOINT_SECONDS = 600.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Checkpointing:
    """Makes checkpoints of `workspace` in `store`; a failure is logged, shown in `state` and retried the next time."""

    database: Database
    workspace: Path
    store: Path
    clock: Clock
    state: str = "none yet"

    async def run(self) -> None:
        """Make a checkpoint if anything has changed, and record the outcome. Never raises."""
        outcome = "last"
        try:
            log.info("checkpoint.made", made=await self.create("timer"))
        except Exception as exc:
            log.warning("checkpoint.failed", error=str(exc), exc_info=not isinstance(exc, SupaclawError))
            outcome = f"failed ({exc})"
        self.state = f"{outcome} at {self.clock.now():%Y-%m-%d %H:%M:%S} UTC"

    async def create(self, reason: str) -> Json:
        """Make a checkpoint now if anything has changed; raises `SupaclawError`."""
        places = str(self.workspace), str(self.store)
        # A checkpoint may take minutes, and a turn may wait for a file to be read.
        return await run_alone(jobs.commit, *places, await self._last_message(), reason, seconds=CHECKPOINT_SECONDS)

    async def _last_message(self) -> MessageId | None:
        """The newest message; None while the database is unavailable, which doesn't stop a checkpoint."""
        try:
            return await self.database.read(messages.last_id)
        except TryAgainLater as exc:
            log.warning("checkpoint.without_message", error=str(exc))
            return None


TEMPORARY_FOR = timedelta(days=1)
"""How long a temporary chat lasts after the last message."""
PAUSE_SECONDS = 0.2
"""The pause between two batches, for other users of the database."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Deletes finished trees, deliveries and buttons that are older than configured, in batches.

    `tasks` is the folder of the trees' files.
    """

    database: Database
    tasks: Path
    settings: Callable[[], RetentionSettings]
    clock: Clock

    async def run(self) -> None:
        """Delete rows and files, and thinking that is older than its own limit; None deletes nothing."""
        now, settings = self.clock.now(), self.settings()
        await self.database.run(lambda tx: retention.note_sizes(tx, now.date()))
        for chat in await self.database.read(lambda conn: addresses.temporary_before(conn, now - TEMPORARY_FOR)):
            await self.database.run(partial(_delete, *chat))
        if (kept := settings.thinking) is not None:
            await self._all(retention.THOUGHTS, now - kept)
        if (keep := settings.keep) is None:
            return
        before, trees = now - keep, 0
        while over := await self.database.run(lambda tx: retention.clear_trees(tx, before)):
            trees += len(over)
            await asyncio.to_thread(self._remove, over)
            await asyncio.sleep(PAUSE_SECONDS)
        deliveries = await self._all(retention.DELIVERIES, before)
        buttons = await self._all(retention.BUTTONS, before)
        if trees or deliveries or buttons:
            log.info("retention.cleared", tasks=trees, deliveries=deliveries, buttons=buttons)

    async def _all(self, what: str, before: datetime) -> int:
        total = 0
        while count := await self.database.run(lambda tx: retention.clear(tx, what, before)):
            total += count
            await asyncio.sleep(PAUSE_SECONDS)
        return total

    def _remove(self, over: Collection[TaskId]) -> None:
        """Delete the folders of these trees; does nothing if a link replaces the parent folder."""
        for master in over if not self.tasks.is_symlink() else ():
            shutil.rmtree(self.tasks / str(master), ignore_errors=True)


async def _delete(person: PrincipalId, session: SessionId, tx: Connection) -> None:
    """Delete a temporary chat, as /new in it does."""
    if await addresses.lock_session(tx, session):
        await replace_session(tx, person, session, await sessions.lock(tx, session))


async def prune_logs(folder: Path, keep: Callable[[], timedelta | None], clock: Clock) -> None:
    """Delete log files that are older than `keep`; None deletes nothing."""
    if gone := await asyncio.to_thread(prune, folder, keep(), clock.now().date()):
        log.info("logs.pruned", files=gone)


async def report_restarts(
    state: Path, starts: StartHistory, tell_owner: Callable[[str], Awaitable[None]], clock: Clock
) -> None:
    """Tell the owner, once per start and at most once an hour, that the process keeps ending by itself."""
    now = clock.now()
    if count := starts.looping(now):
        log.error("gateway.crash_loop", ends=count)
    if text := starts.notice(now):
        await tell_owner(text)
        await asyncio.to_thread(record_notice, state, clock)


POLL_SECRETS = timedelta(minutes=1)
"""A changed secret also sends a notification, which may be lost."""


async def reload_secrets(secrets: LiveSecrets, clock: Clock) -> datetime:
    """Reload the secrets that were changed in the database; return when to look again."""
    await secrets.look()
    return clock.now() + POLL_SECRETS


POLL_DELETED_SECONDS = 10.0
_KEY_NAME = re.compile(r"journal|local-token|page-name|postgres\.[a-z_]+")


class Restorer:
    """Restores deleted keys and the workspace folder. Tells the owner once about files that can't be restored."""

    def __init__(
        self, environment: Environment, hold: InstanceLock, tell_owner: Callable[[str], Awaitable[object]]
    ) -> None:
        self._data, self._workspace = environment.data, environment.workspace
        self._folder = os.stat(self._workspace)
        self._tell_owner = tell_owner
        self._keys: dict[Path, bytes] = {}
        self._reported: dict[str, str] = {}
        self._work = {"gateway.pid": hold.keep, "keys": self._restore_keys, "workspace": self._restore_workspace}

    async def look(self) -> None:
        """Restore the gateway.pid file, the keys and the workspace folder if they are missing."""
        for name, problem in (await asyncio.to_thread(self._problems)).items():
            if problem and problem != self._reported.get(name):
                log.warning("files.deleted", problem=problem)
                await self._tell_owner(problem)
            self._reported[name] = problem

    def _problems(self) -> Mapping[str, str]:
        """Restore what is missing; why that fails or what was lost, by what it is."""
        problems: dict[str, str] = {}
        for name, restore in self._work.items():
            try:
                problems[name] = restore() or ""
            except (OSError, OwnerMustAct) as exc:
                problems[name] = f"{name} of {self._data} cannot be restored: {exc}; move away what is in its place"
        return problems

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
