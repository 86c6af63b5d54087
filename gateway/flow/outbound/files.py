"""The file of a part that is about to be sent, or the words that go in its place."""

import asyncio
import mimetypes
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from gateway.domain.channels.channel import OutgoingFile
from gateway.domain.errors import SupaclawError
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection
from gateway.store.transcript import files
from gateway.store.transcript.files import FileRow
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.states import measure
from gateway.workspace.files.tree import Written

Roots: TypeAlias = Callable[[PrincipalId], Path]
"""Where the files of a principal lie."""


class NotAttachable(SupaclawError):
    """The file cannot be sent there; the text is for people and says where it is."""


def no_root(_principal: PrincipalId) -> Path:
    """Where nobody has files."""
    raise NotAttachable("Files cannot be sent from here.")


async def outgoing_file(root: Path, file: FileRow, most: int) -> OutgoingFile:
    """The file as it was when it was queued, of at most `most` bytes; raises `NotAttachable`."""
    if not most:
        raise NotAttachable(f"Files cannot be sent here. {whereabouts(file)}")
    try:
        now = await asyncio.to_thread(measure, root, file.path, most)
    except WorkspaceError as exc:
        if exc.code == "too_large":
            raise NotAttachable(f"{file.name} is too large to send here. {whereabouts(file)}") from exc
        raise NotAttachable(f"{file.name} couldn't be sent: it's no longer at {file.path}.") from exc
    if now.sha256 != file.sha256:
        raise NotAttachable(f"{file.name} was not sent: it has changed since. {whereabouts(file)}")
    return OutgoingFile(str(root / file.path), file.name, file.mime, now.size)


async def recorded(tx: Connection, principal: PrincipalId, file: Written, label: Label) -> FileRow:
    """The record of a file that the agent is about to send."""
    mime = mimetypes.guess_type(file.path)[0] or "application/octet-stream"
    size, sha256 = file.size, file.sha256
    return await files.keep(tx, principal, file.path, size=size, mime=mime, sha256=sha256, label=label, origin="agent")


def whereabouts(file: FileRow) -> str:
    """Where people find it instead."""
    return f"It's in my files: {file.path}"
