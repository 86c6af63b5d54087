"""Rows as the journal shows them."""

import re
from collections.abc import Sequence

from gateway.store.transcript.entries import Line
from gateway.workspace.journal.entries import JournalEntry

_SHOWN = {
    "assistant": "SupaClaw",
    "tool_intent": "Tool call: {}",
    "tool_result": "Tool result: {}",
    "summary": "Summary",
    "notice": "Gateway",
}


def transcribed(lines: Sequence[Line]) -> list[JournalEntry]:
    """The rows as entries, in the same order."""
    return [
        JournalEntry(line.entry_id, line.kind, line.at, _who(line), _text(line), files=line.files) for line in lines
    ]


def _who(line: Line) -> str:
    return _SHOWN.get(line.kind, "{}").format(line.who or "User")


def _text(line: Line) -> str:
    if line.kind not in ("tool_intent", "tool_result"):
        return line.text
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", line.text)), default=0))
    left_out = line.length - len(line.text)
    remark = f"\n\n[… {left_out:,} more characters; the database has the whole]" if left_out > 0 else ""
    return f"{fence}json\n{line.text}\n{fence}{remark}"
