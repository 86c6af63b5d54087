"""A message too long to be read at once becomes a file the agent reads in pages."""

from collections.abc import Sequence
from dataclasses import replace

from gateway.domain.conversation.transcript import Entry, UserText
from gateway.domain.text.tokens import estimate
from gateway.store.transcript.messages import MessageRow
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace

MAX_TOKENS = 20_000
HEAD = 2_000


async def shortened(rows: Sequence[MessageRow], workspace: Workspace) -> list[Entry]:
    """The rows as entries, long texts of people replaced by their beginning and where the rest is.

    The place depends on the message alone, so a later turn finds the same file and says the same words.
    """
    return [await _shortened(row, workspace) for row in rows]


async def _shortened(row: MessageRow, workspace: Workspace) -> Entry:
    entry = row.entry
    # A token is at least one character, so most texts need no estimate.
    if not isinstance(entry, UserText) or len(entry.text) <= MAX_TOKENS or estimate(entry.text) <= MAX_TOKENS:
        return entry
    path = f"uploads/message-{row.id}.txt"
    try:
        if await workspace.page(path, limit=1) is None:
            await workspace.write(path, entry.text, row.label, unlocked=True)
        where = f"the whole message, {len(entry.text):,} characters, is in {path}"
    except WorkspaceError as exc:
        where = f"the rest of {len(entry.text):,} characters could not be stored: {exc}"
    return replace(entry, text=f"{entry.text[:HEAD]}\n[… {where}]")
