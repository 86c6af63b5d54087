"""Which memories an answer used: those its turn was reminded of, and those it searched for. Only ids are kept."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.domain.ids import MemoryId, MessageId, PrincipalId, TaskId
from gateway.store.pool import Connection
from gateway.store.transcript.messages import MessageRow

_SEARCHES = frozenset({"memory_search", "memory_get"})


async def note(
    tx: Connection, task: TaskId, principal: PrincipalId, answer: MessageId, reminded: Sequence[MemoryId]
) -> None:
    """Record what the turn was reminded of before it gave this answer; the transcript has nothing of it."""
    name = f"reminded {answer} {' '.join(map(str, reminded))}"
    await tx.execute(
        "insert into task_steps (task_id, principal_id, kind, name) values ($1, $2, 'note', $3)", task, principal, name
    )


async def joined(conn: Connection, rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows, each answer with the memories it used."""
    tasks = {row.task_id for row in rows if row.ends_turn}
    names = await conn.fetch(
        "select name from task_steps where task_id = any($1) and kind = 'note' and starts_with(name, 'reminded ')",
        list(tasks),
    )
    reminded = {int(answer): tuple(map(int, ids)) for _, answer, *ids in (row["name"].split() for row in names)}
    found: dict[TaskId | None, list[int]] = {}
    made = list(rows)
    for place, row in enumerate(rows):
        if row.kind == "tool_result" and row.tool in _SEARCHES:
            found.setdefault(row.task_id, []).extend(_found(row.text))
        elif row.ends_turn:
            used = dict.fromkeys((*reminded.get(row.id, ()), *found.pop(row.task_id, ())))
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
