"""The parts of an outgoing message: its texts and files; a long answer becomes its beginning and a file."""

import asyncio
import hashlib
import mimetypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TypeAlias, TypedDict, Unpack

import structlog

from gateway.domain.channels.channel import Button, Channel, OutgoingFile
from gateway.domain.conversation.transcript import Notice
from gateway.domain.errors import SupaclawError
from gateway.domain.ids import FileId, PrincipalId
from gateway.domain.principals import Label
from gateway.domain.text.splitting import split, utf16_len
from gateway.domain.text.texts import storable
from gateway.store.connection.pool import Connection
from gateway.store.delivery import outbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.files import files
from gateway.store.files.files import FileRow
from gateway.store.transcript import messages
from gateway.workspace.files.disk import Written, measure
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace

MAX_CAPTION = 1000
"""UTF-16 units that every messenger accepts as a caption."""


class Attachments(TypedDict, total=False):
    """The files, the buttons, the answered message and the heading of a text."""

    files: Sequence[FileId]
    buttons: Sequence[Button]
    reply_to: str | None
    heading: str


def parts(text: str, limit: int, most_marks: int | None = None, **more: Unpack[Attachments]) -> list[OutboxPart]:
    """The text in parts as `split` makes them, the last with the buttons; then the files, in order.

    A short text without buttons becomes the caption of the first file. Only the first part is a reply. Every part
    begins with the `heading`.
    """
    files, buttons, heading = more.get("files", ()), more.get("buttons", ()), more.get("heading", "")
    top = f"{heading}\n\n" if heading else ""
    made = [OutboxPart(f"{top}{each}") for each in split(storable(text), limit - utf16_len(top), most_marks)]
    if made and buttons:
        made[-1] = replace(made[-1], buttons=tuple(buttons))
    if len(made) == 1 and files and not buttons and utf16_len(made[0].text) <= MAX_CAPTION:
        made, files = [replace(made[0], file=files[0])], files[1:]
    made += [OutboxPart(heading, file=file) for file in files]
    if made:
        made[0] = replace(made[0], reply_to=more.get("reply_to"))
    return made


async def send_notice(tx: Connection, at: AddressRow, text: str, limit: int) -> None:
    """Say something of the gateway's own in a chat and queue it; commits together with its cause."""
    said = await messages.say(tx, at.session_id, at.principal_id, Notice(text), label=Label.OWNER, address=at.id)
    await outbox.put(tx, at.principal_id, at.id, said.id, parts(text, limit), notice=True)


Roots: TypeAlias = Callable[[PrincipalId], Path]
"""The folder of a principal's files."""


class NotAttachable(SupaclawError):
    """The file cannot be sent; the text tells people where it is."""


async def outgoing_file(root: Path, file: FileRow, most: int) -> OutgoingFile:
    """The file, unchanged since it was queued, of at most `most` bytes; raises `NotAttachable`."""
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


async def record_file(tx: Connection, principal: PrincipalId, file: Written, label: Label) -> FileRow:
    """Record a file that the agent is about to send."""
    mime = mimetypes.guess_type(file.path)[0] or "application/octet-stream"
    size, sha256 = file.size, file.sha256
    return await files.keep(
        tx, principal, file.path, size=size, mime=mime, sha256=sha256, label=label, origin=files.OWN
    )


def whereabouts(file: FileRow) -> str:
    """A sentence with the path of the file."""
    return f"It's in my files: {file.path}"


MAX_MESSAGES = 5
"""Most messages of one answer."""
TO_BE_CONTINUED = "[… the whole answer is in the file below]"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Abridged:
    """The text that is sent for an answer, and the file with the whole."""

    text: str
    whole: Written | None = None

    async def keep(self, tx: Connection, principal: PrincipalId, label: Label) -> tuple[FileId, ...]:
        """Record the file, if there is one."""
        return () if self.whole is None else ((await record_file(tx, principal, self.whole, label)).id,)


async def abridge(text: str, label: Label, channel: Channel | None, workspace: Workspace, now: datetime) -> Abridged:
    """The answer as its channel can show it; its file is on disk on return, with the run's `label`."""
    if channel is None or utf16_len(text) <= channel.capabilities.max_text:
        return Abridged(text)
    limit, data = channel.capabilities.max_text, storable(text).encode()
    if len(data) > channel.capabilities.max_file or len(split(text, limit)) <= MAX_MESSAGES:
        return Abridged(text)
    # Two answers of one second may not overwrite each other.
    name = f"answer-{now:%Y-%m-%d-%H%M%S}-{hashlib.sha256(data).hexdigest()[:6]}.md"
    try:
        whole = await workspace.write(f"answers/{name}", data, label, unlocked=True)
    except WorkspaceError as exc:
        log.warning("answer.not_filed", error=str(exc))
        return Abridged(text)
    beginning = split(text, limit - utf16_len(TO_BE_CONTINUED) - 2)[0]
    return Abridged(f"{beginning}\n\n{TO_BE_CONTINUED}", whole)
