"""Which memories an answer used: those its turn was reminded of, and those it searched for. Only ids are kept."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.domain.ids import MemoryId, TaskId
from gateway.store.transcript.messages import MessageRow

_SEARCHES = frozenset({"memory_search", "memory_get"})


def joined(rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows, each answer with all that it used: to what it was reminded of comes what its turn found."""
    found: dict[TaskId | None, list[int]] = {}
    made = list(rows)
    for place, row in enumerate(rows):
        if row.kind == "tool_result" and row.tool in _SEARCHES:
            found.setdefault(row.task_id, []).extend(_found(row.text))
        elif row.ends_turn:
            used = dict.fromkeys((*row.remembered, *found.pop(row.task_id, ())))
            made[place] = replace(row, remembered=tuple(map(MemoryId, used))) if used else row
    return made


def _found(result: str) -> Iterable[int]:
    """The rows in a result of `memory_search` or `memory_get`; none in one that failed or was too long to keep."""
    try:
        answer = json.loads(result)
    except ValueError:
        return ()
    rows = answer.get("memories", [answer]) if isinstance(answer, dict) else ()
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), int)]
