"""Rows as the journal shows them."""

import re
from collections.abc import Sequence
from typing import assert_never

from gateway.store.entries import Line
from gateway.workspace.journal.entry import Entry

AGENT = "SupaClaw"
GATEWAY = "Gateway"


def transcribed(lines: Sequence[Line]) -> list[Entry]:
    """The rows as entries, in the same order."""
    return [Entry(line.entry_id, line.kind, line.at, _who(line), _text(line)) for line in lines]


def _who(line: Line) -> str:
    match line.kind:
        case "user" | "command" | "edit":
            return line.who or "User"
        case "assistant":
            return AGENT
        case "tool_intent":
            return f"Tool call: {line.who}"
        case "tool_result":
            return f"Tool result: {line.who}"
        case "summary":
            return "Summary"
        case "notice":
            return GATEWAY
        case _:
            assert_never(line.kind)


def _text(line: Line) -> str:
    return _fenced(line) if line.kind in ("tool_intent", "tool_result") else line.text


def _fenced(line: Line) -> str:
    longest = max((len(run) for run in re.findall("`+", line.text)), default=0)
    fence = "`" * max(3, longest + 1)
    left_out = line.length - len(line.text)
    remark = f"\n\n[… {left_out:,} more characters; the database has the whole]" if left_out > 0 else ""
    return f"{fence}json\n{line.text}\n{fence}{remark}"
