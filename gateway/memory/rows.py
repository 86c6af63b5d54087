"""A row of memory as programs see it, by the API and by `--json`."""

from dataclasses import dataclass, fields
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
    same = {name: getattr(memory, name) for name in _SAME}
    trust = memory.label.name.lower()
    return Row(**same, trust=trust, who=who(memory), session=memory.session_id, message=memory.message_id)


_SAME = {each.name for each in fields(Row)} & {each.name for each in fields(Memory)}
