"""A row of memory as programs see it, by the API and by `--json`."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from gateway.domain.memory import Category, Kind, Memory
from gateway.memory.wording import who


@dataclass(frozen=True, slots=True)
class Row:
    """A row of memory; `trust` is owner, known or untrusted."""

    id: int
    kind: Kind
    text: str
    category: Category | None
    importance: float
    tags: tuple[str, ...]
    pinned: bool
    trust: str
    origin: str
    agent: str
    who: str
    session: UUID | None
    message: int | None
    path: str | None
    page: int | None
    event_at: datetime | None
    created_at: datetime
    superseded_by: int | None
    seen_count: int


def row_of(memory: Memory) -> Row:
    """What of a memory is shown."""
    return Row(
        id=memory.id,
        kind=memory.kind,
        text=memory.text,
        category=memory.category,
        importance=memory.importance,
        tags=memory.tags,
        pinned=memory.pinned,
        trust=memory.label.name.lower(),
        origin=memory.origin,
        agent=memory.agent,
        who=who(memory),
        session=memory.session_id,
        message=memory.message_id,
        path=memory.path,
        page=memory.page,
        event_at=memory.event_at,
        created_at=memory.created_at,
        superseded_by=memory.superseded_by,
        seen_count=memory.seen_count,
    )
