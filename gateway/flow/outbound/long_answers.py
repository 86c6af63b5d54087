"""An answer of too many messages goes as its beginning and a file; the transcript has the whole of it either way."""

import hashlib
from dataclasses import dataclass
from datetime import datetime

import structlog

from gateway.domain.channels.channel import Channel
from gateway.domain.ids import FileId, PrincipalId
from gateway.domain.principals import Label
from gateway.domain.text.splitting import split, utf16_len
from gateway.domain.text.texts import storable
from gateway.flow.outbound.files import recorded
from gateway.store.connection.pool import Connection
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace, Written

MESSAGES = 5
"""The most that one answer is sent as."""
TO_BE_CONTINUED = "[… the whole answer is in the file below]"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Abridged:
    """What is sent of an answer."""

    text: str
    whole: Written | None = None

    async def keep(self, tx: Connection, principal: PrincipalId, label: Label) -> tuple[FileId, ...]:
        """Note the file that goes with the text, if there is one."""
        return () if self.whole is None else ((await recorded(tx, principal, self.whole, label)).id,)


async def abridged(text: str, label: Label, channel: Channel | None, workspace: Workspace, now: datetime) -> Abridged:
    """The answer as its channel can show it; a file that goes with it is on disk already, with the run's `label`."""
    if channel is None or utf16_len(text) <= channel.capabilities.max_text:
        return Abridged(text)
    limit, data = channel.capabilities.max_text, storable(text).encode()
    if len(data) > channel.capabilities.max_file or len(split(text, limit)) <= MESSAGES:
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
