"""Workflows: the owner's instructions for events of a source, in `.agents/workflows/<source>.md`."""

from gateway.domain.work.assignment import QUIET
from gateway.workspace.paths import WorkspaceError
from gateway.workspace.prompts import clipped
from gateway.workspace.tree import Workspace

SOURCE = r"^[a-z0-9][a-z0-9._-]{0,63}$"
"""Valid names of a source; a source names a file."""

MAX_CHARS = 10_000


async def workflow(workspace: Workspace, source: str) -> str:
    """The instructions for a source; the built-in ones if its file is missing or empty.

    Never raises: a file that cannot be read is reported in the text.
    """
    path = f".agents/workflows/{source}.md"
    try:
        content = await workspace.content(path, MAX_CHARS * 4)
    except WorkspaceError as error:
        return f"{_built_in(source)}\n\n[{path} could not be read: {error}]"
    text = (content or b"").decode("utf-8", "replace").strip()
    return clipped(text, path, MAX_CHARS) or _built_in(source)


def _built_in(source: str) -> str:
    return (
        f"Something happened at {source}. Tell the user what matters about it, briefly; if nothing does, "
        f"answer exactly `{QUIET}`."
    )
