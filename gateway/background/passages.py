"""Brings passages of files into memory: of the texts in workspaces, and of what was read out of attachments."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from gateway.domain.clock import Clock
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.flow.secrets.guard import Clean
from gateway.memory.passages import passages
from gateway.store.connection.pool import Database
from gateway.store.memory import chunks
from gateway.store.people import principals
from gateway.workspace.files.paths import INSTRUCTIONS, READ_ONLY, WorkspaceError
from gateway.workspace.files.tree import Workspace
from gateway.workspace.files.uploads import PAGES_SUFFIX, TEXT_SUFFIX

EVERY_SECONDS = 600.0
MAX_FILES = 2_000
"""Of one person; further ones are not searched."""
MAX_BYTES = 512 * 1024
"""Of one file; the rest of it is not searched."""
SUFFIXES = frozenset(
    {".md", ".txt", ".rst", ".org", ".tex", ".csv", ".tsv", ".json", ".yaml", ".yml", ".toml", ".html"}
)
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class FilePassages:
    """Looks every ten minutes at sizes and dates, and reads what is new or changed."""

    database: Database
    workspace: Callable[[PrincipalId], Workspace]
    clock: Clock
    clean: Clean = str
    _due: float = 0.0

    async def look(self) -> None:
        """If it is time."""
        if self.clock.monotonic() < self._due:
            return
        async with self.database.connection() as conn:
            everybody = await principals.everybody(conn)
        for principal in everybody:
            await self._look_at(principal, self.workspace(principal))
        self._due = self.clock.monotonic() + EVERY_SECONDS

    async def _look_at(self, principal: PrincipalId, workspace: Workspace) -> None:
        there = await asyncio.to_thread(lambda: dict(text_files(workspace.root)))
        async with self.database.connection() as conn:
            known = await chunks.known(conn, principal)
        for path in known.keys() - there.keys():
            await self.database.run(partial(chunks.remove, principal=principal, path=path))
        for path, (text_path, version) in there.items():
            if known.get(path) != version:
                await self._read(principal, workspace, path, text_path, version)

    async def _read(
        self, principal: PrincipalId, workspace: Workspace, path: str, text_path: str, version: str
    ) -> None:
        """One that cannot be read has no passages until it changes."""
        try:
            page = await workspace.page(text_path, limit=MAX_BYTES)
        except WorkspaceError as exc:
            log.info("memory.file_not_read", path=path, error=str(exc))
            page = None
        found = await asyncio.to_thread(passages, self.clean(page.text)) if page else ()
        label = page.label if page else Label.UNTRUSTED
        await self.database.run(lambda tx: chunks.replace(tx, principal, path, version, label, found))


def text_files(root: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the path of each file that has a text, where the text is, and its version."""
    left = MAX_FILES
    for folder, folders, names in os.walk(root):
        inside = Path(folder).relative_to(root)
        skipped = _APART if not inside.parts else frozenset[str]()
        folders[:] = [name for name in sorted(folders) if _searched(name, skipped) and not name.endswith(PAGES_SUFFIX)]
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix.casefold() in SUFFIXES and _searched(name, skipped) and not path.is_symlink() and left:
                left -= 1
                source = name.removesuffix(TEXT_SUFFIX)
                with suppress(OSError):
                    state = path.lstat()
                    of = str(inside / (source if source in names else name))
                    yield of, (str(inside / name), f"{state.st_size}:{state.st_mtime_ns}")


_APART = INSTRUCTIONS | READ_ONLY
"""At the top: what every prompt has, and copies of what was said, which is found as it was said."""


def _searched(name: str, skipped: frozenset[str]) -> bool:
    return not name.startswith(".") and name.casefold() not in skipped and storable(name) == name
