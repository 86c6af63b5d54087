"""Files in the prompt: the text of short ones, and pictures of those that are to be answered now."""

from collections.abc import Sequence, Set
from dataclasses import replace

from gateway.domain.conversation.attachments import Attached
from gateway.domain.conversation.model import Image
from gateway.domain.conversation.transcript import Entry, UserText
from gateway.domain.ids import MessageId
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace

SHORT = 3_000
"""Characters of a file that are shown at once; of what is longer only the path is given."""
OF_A_MESSAGE = 12_000
PICTURES = 8
PICTURE_BYTES = 400_000


async def with_files(entries: Sequence[Entry], workspace: Workspace, asked: Set[MessageId]) -> list[Entry]:
    """The entries with what can be shown of their files; pictures only with what is `asked`, the newest."""
    shown: list[Entry] = []
    room = PICTURES
    for entry in reversed(entries):
        if isinstance(entry, UserText) and entry.attachments:
            images = await _pictures(entry.attachments, workspace, room) if entry.id in asked else ()
            room -= len(images)
            listed = await _with_text(entry.attachments, workspace)
            shown.append(replace(entry, attachments=listed, images=images))
        else:
            shown.append(entry)
    return shown[::-1]


async def _with_text(files: Sequence[Attached], workspace: Workspace) -> tuple[Attached, ...]:
    listed: list[Attached] = []
    room = OF_A_MESSAGE
    for file in files:
        text = await _short_text(file, workspace)
        room -= len(text)
        listed.append(replace(file, excerpt=text) if text and room >= 0 else file)
    return tuple(listed)


async def _short_text(file: Attached, workspace: Workspace) -> str:
    data = await content(workspace, file.text_path, 4 * SHORT + 1)
    text = data.decode("utf-8", "replace").strip("\n")
    return text if len(text) <= SHORT else ""


async def _pictures(files: Sequence[Attached], workspace: Workspace, most: int) -> tuple[Image, ...]:
    found: list[Image] = []
    for file in reversed(files):
        if len(found) < most:
            found += await picture(workspace, file.view_path)
    return tuple(reversed(found))


async def picture(workspace: Workspace, path: str) -> tuple[Image, ...]:
    """The picture that was made of a file; none where there is none, or one too large."""
    data = await content(workspace, path, PICTURE_BYTES + 1)
    return (Image("image/jpeg", data),) if 0 < len(data) <= PICTURE_BYTES else ()


async def content(workspace: Workspace, path: str, limit: int) -> bytes:
    """What is there; nothing where the file is gone, or is no file any more."""
    if not path:
        return b""
    try:
        return await workspace.content(path, limit) or b""
    except WorkspaceError:
        return b""
