"""Exact replacements in a text, applied all or none."""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from gateway.domain.conversation.tools import ToolFailed
from gateway.workspace.files.tree import MAX_WRITE_BYTES


class Edit(BaseModel, extra="forbid", frozen=True):
    """One exact replacement."""

    old_text: str = Field(description="Exact; must occur once unless replace_all")
    new_text: str
    replace_all: bool = False


def apply_edits(text: str, edits: Sequence[Edit]) -> tuple[str, list[int]]:
    """Apply the edits in order; returns the text and each edit's count. Raises `ToolFailed` if one does not apply."""
    counts: list[int] = []
    for number, edit in enumerate(edits, start=1):
        found = _occurrences(text, edit, number)
        if len(text) + found * (len(edit.new_text) - len(edit.old_text)) > MAX_WRITE_BYTES:
            message = f"Edit {number} would make the file larger than 5 MB; nothing was changed."
            raise ToolFailed.own("too_large", message)
        text = text.replace(edit.old_text, edit.new_text)
        counts.append(found)
    return text, counts


def _occurrences(text: str, edit: Edit, number: int) -> int:
    if not edit.old_text:
        raise ToolFailed.own("empty_old_text", f"Edit {number} has an empty old_text; give the exact text to replace.")
    found = text.count(edit.old_text)
    if found == 0:
        message = f"Edit {number}: old_text is not in the file; nothing was changed. Read the file and copy it exactly."
        raise ToolFailed.own("not_found", message)
    if found > 1 and not edit.replace_all:
        message = (
            f"Edit {number}: old_text occurs {found} times; nothing was changed. Add lines around it or replace_all."
        )
        raise ToolFailed.own("ambiguous", message)
    return found
