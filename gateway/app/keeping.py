"""Puts back what somebody deletes or replaces while the gateway runs: its record, its keys, its workspace."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from gateway.config.environment import Environment
from gateway.config.files import read_regular, replace_regular
from gateway.config.instance import Hold
from gateway.domain.errors import OwnerMustAct
from gateway.workspace.template import fill_new_workspace

EVERY_SECONDS = 10.0

log = structlog.get_logger(__name__)


class Keeping:
    """Remembers what was there. What cannot be put back is told once."""

    def __init__(self, environment: Environment, hold: Hold, tell_owner: Callable[[str], Awaitable[object]]) -> None:
        self._data = environment.data
        self._workspace = environment.workspace
        self._hold = hold
        self._tell_owner = tell_owner
        self._texts: dict[Path, bytes] = {}
        self._folder = os.stat(self._workspace)
        self._failing: dict[str, str] = {}

    async def look(self) -> None:
        """Compare, and restore."""
        for problem in await asyncio.to_thread(self._look):
            await self._tell_owner(problem)

    def _look(self) -> list[str]:
        work = {"gateway.pid": self._keep_record, "keys": self._keep_keys, "workspace": self._keep_workspace}
        return [problem for name, keep in work.items() if (problem := self._try(name, keep))]

    def _try(self, name: str, keep: Callable[[], str]) -> str:
        try:
            problem = keep()
        except (OSError, OwnerMustAct) as exc:
            problem = f"{self._data / name} is gone and cannot be made again: {exc}; move away what is in its place"
            if self._failing.get(name) == problem:
                return ""
            log.warning("file.not_restored", problem=problem)
            self._failing[name] = problem
            return problem
        self._failing.pop(name, None)
        return problem

    def _keep_record(self) -> str:
        if self._hold.keep():
            log.warning("file.restored", file="gateway.pid")
        return ""

    def _keep_workspace(self) -> str:
        if self._workspace.is_dir() and os.path.samestat(os.stat(self._workspace), self._folder):
            return ""
        fill_new_workspace(self._workspace)
        self._folder = os.stat(self._workspace)
        how = "`supaclaw checkpoints list` shows what can be restored"
        log.error("workspace.gone", path=str(self._workspace), hint=how)
        return f"The folder {self._workspace} was deleted or replaced while I was running; {how}."

    def _keep_keys(self) -> str:
        folder = self._data / "keys"
        here = [path for path in folder.iterdir() if not path.name.startswith((".", "tmp"))] if folder.is_dir() else []
        for path in {*self._texts, *here, self._data / "instance"}:
            if not self._learned(path):
                replace_regular(path, self._texts[path])
                log.warning("file.restored", file=str(path))
        return ""

    def _learned(self, path: Path) -> bool:
        """Whether it needs no restoring: it holds something, or never did."""
        try:
            if text := read_regular(path):
                self._texts[path] = text
                return True
        except OSError:
            pass
        return path not in self._texts
