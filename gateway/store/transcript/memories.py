"""Memories: durable facts, each with where it was learned."""

from dataclasses import dataclass
from datetime import datetime

from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.principals import Label
from gateway.domain.texts import storable
from gateway.store.pool import Connection


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One fact; it was learned from a stretch of a conversation and is trusted no more than that was."""

    id: int
    principal_id: PrincipalId
    text: str
    label: Label
    origin: str
    session_id: SessionId
    first_seq: int
    last_seq: int
    created_at: datetime


async def add(
    conn: Connection,
    principal: PrincipalId,
    text: str,
    *,
    label: Label,
    origin: str,
    session: SessionId,
    first_seq: int,
    last_seq: int,
) -> MemoryRow | None:
    """Remember a fact; None if it is known in the same words already, which then stays as it is."""
    row = await conn.fetchrow(
        """insert into memories (principal_id, text, label, origin, session_id, first_seq, last_seq)
           values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing returning *""",
        principal,
        storable(text),
        label,
        origin,
        session,
        first_seq,
        last_seq,
    )
    return MemoryRow(**{**row, "label": Label(row["label"])}) if row else None
