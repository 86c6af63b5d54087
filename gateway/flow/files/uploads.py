"""Uploads: files from outside become a principal's files; each content is stored once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from weakref import WeakValueDictionary

from gateway.domain.errors import SupaclawError
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.time import Clock
from gateway.flow.files.workspaces import Workspaces
from gateway.store.connection.pool import Database
from gateway.store.files import contents, files
from gateway.store.files.files import FileRow
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.uploads import UPLOADS, Incoming, received, safe_name, unchanged


class UploadRefused(SupaclawError):
    """The file is refused; the text is one line for people: the reason, and what would work."""


class Uploads:
    """Stores uploads in `uploads/`, by day; `most` returns the size limit in bytes."""

    def __init__(self, database: Database, workspaces: Workspaces, clock: Clock, most: Callable[[], int]) -> None:
        self._database = database
        self._workspaces = workspaces
        self._clock = clock
        self._most = most
        self._one_by_one: WeakValueDictionary[PrincipalId, asyncio.Lock] = WeakValueDictionary()

    def check(self, size: int | None) -> None:
        """Raise `UploadRefused` if the announced size is too large; None means that the size is unknown."""
        most = self._most()
        if size is not None and size > most:
            raise UploadRefused(f"it has {size / 1024**2:,.0f} MB, {_limit(most)}")

    async def keep(
        self,
        principal: PrincipalId,
        name: str,
        mime: str,
        pieces: AsyncIterator[bytes],
        *,
        origin: str,
        apart: bool = False,
    ) -> FileRow:
        """Store a file and return its row once its bytes are on disk; returns the earlier row for a known content.

        `apart`: its sender may not learn where and under what name others have sent the same content.
        Raises `UploadRefused`, `DatabaseDown` and the errors of `pieces`; then nothing of the file remains.
        """
        root, most = self._workspaces.of(principal).root, self._most()
        alone = self._one_by_one.setdefault(principal, asyncio.Lock())
        try:
            async with received(root, pieces, most) as incoming, alone:
                own = (origin, safe_name(name, mime)) if apart else None
                known = await self._known(principal, incoming, own)
                return known or await self._settle(principal, incoming, safe_name(name, mime), mime, origin)
        except WorkspaceError as exc:
            raise UploadRefused(f"it is too large: {_limit(most)}" if exc.code == "too_large" else str(exc)) from exc

    async def place(self, principal: PrincipalId, path: str, mime: str, pieces: AsyncIterator[bytes]) -> None:
        """Store the owner's upload at a free path; it is untrusted until a person vouches for it.

        Raises `UploadRefused`, `WorkspaceError` and the errors of `pieces`; then nothing of the file remains.
        """
        workspace, most = self._workspaces.of(principal), self._most()
        try:
            async with received(workspace.root, pieces, most) as incoming:
                await workspace.move(f"{UPLOADS}/{incoming.temporary}", path, Label.OWNER, mime, unlocked=True)
        except WorkspaceError as exc:
            if exc.code != "too_large":
                raise
            raise UploadRefused(f"it is too large: {_limit(most)}") from exc

    async def _known(self, principal: PrincipalId, incoming: Incoming, own: tuple[str, str] | None) -> FileRow | None:
        alike = await self._database.read(lambda conn: files.same(conn, principal, incoming.sha256, UPLOADS))
        for row in alike:
            if own not in (None, (row.origin, row.name)):
                continue
            if await asyncio.to_thread(unchanged, incoming.root, row.path, row.sha256):
                return row
        return None

    async def _settle(self, principal: PrincipalId, incoming: Incoming, name: str, mime: str, origin: str) -> FileRow:
        if quota := self._workspaces.of(principal).quota:
            await asyncio.to_thread(quota.reserve, incoming.size)
        size, sha256 = incoming.size, incoming.sha256
        # Any author may have written its content, no matter who sent it.
        await self._database.run_alone(lambda conn: contents.note(conn, principal, sha256, Label.UNTRUSTED, "upload"))
        path = await asyncio.to_thread(incoming.settle, f"{self._clock.now():%Y-%m-%d}", name)
        async with self._database.connection() as conn:
            return await files.keep(
                conn,
                principal,
                path,
                size=size,
                mime=storable(mime),
                sha256=sha256,
                label=Label.UNTRUSTED,
                origin=origin,
            )


def _limit(most: int) -> str:
    return f"files of up to {most / 1024**2:g} MB are taken (limits.file_mb); send a smaller one"
