"""Puts back what somebody deletes or replaces while the gateway runs: its record, its keys, its workspace."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import structlog

from gateway.config.data.files import read_regular, replace_regular
from gateway.config.data.instance import InstanceLock
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.workspace.template import fill_new_workspace

EVERY_SECONDS = 2.0
_KEY = re.compile(r"journal|local-token|page-name|postgres\.[a-z_]+")

log = structlog.get_logger(__name__)


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
        here = [path for path in folder.iterdir() if _KEY.fullmatch(path.name)] if folder.is_dir() else []
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
