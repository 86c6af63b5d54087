"""Hooks: what happened to the owner, and how far each hook is in it (rows of `meta`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import TypeAdapter

from gateway.domain.ids import PrincipalId
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, statement

MOST = 100
"""Events that are read at once."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """Something that happened: its place among those of its kind, ids and numbers, and its words, if it has any.

    `id` is the same whenever it is sent.
    """

    id: str
    kind: str
    mark: str
    at: datetime
    data: Mapping[str, object]
    text: str = ""


@dataclass(frozen=True, slots=True)
class HookPlace:
    """The last event of each kind that a hook has sent, or given up; `failures` and `retry_at` are of the next one."""

    marks: Mapping[str, str] = field(default_factory=dict)
    failures: int = 0
    retry_at: datetime | None = None


_PLACE = TypeAdapter(HookPlace)
_BEGIN = """insert into meta (key, value) values ($1, jsonb_build_object('marks', jsonb_build_object(
  'answer.sent', (select coalesce(max(id), 0) from messages)::text,
  'review.asked', (select coalesce(max(id), 0) from reviews)::text, 'task.ended', now()))) on conflict do nothing"""


async def following(tx: Connection, owner: PrincipalId, hook: str) -> tuple[HookPlace, list[HookEvent]]:
    """How far a hook is, and the events since then, each kind from the oldest on. A new hook begins now."""
    await tx.execute(_BEGIN, f"hook {hook}")
    place = _PLACE.validate_python(await tx.fetchval("select value from meta where key = $1", f"hook {hook}"))
    answer, review, task = (place.marks[kind] for kind in ("answer.sent", "review.asked", "task.ended"))
    since = datetime.fromisoformat(task)
    return place, await fetch_all(
        tx, HookEvent, statement("work/hook_events"), owner, int(answer), int(review), since, MOST
    )


async def keep(tx: Connection, hook: str, place: HookPlace) -> None:
    """Note how far a hook is."""
    value = _PLACE.dump_python(place, mode="json")
    await tx.execute("update meta set value = $2 where key = $1", f"hook {hook}", value)
