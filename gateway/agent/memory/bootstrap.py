"""What a new session is told of the one before it, and of what is known."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.memory import DEFAULT_AGENT, EVERYTHING, Filter, Memory, Reach
from gateway.domain.principals import Label
from gateway.memory.wording import Bootstrap, bootstrap
from gateway.store.connection.pool import Connection
from gateway.store.memory import standing

HALF_LIFE = timedelta(days=30)
CORE = "core"
"""The tag of what never grows old."""
ALWAYS = (CORE, "preference")


async def bootstrap_context(
    conn: Connection,
    principal: PrincipalId,
    as_of: datetime,
    *,
    session: SessionId | None = None,
    max_tokens: int = 2_000,
    include_last_session: bool = True,
    top_memories: int = 10,
    always_include_tags: Collection[str] = ALWAYS,
    recency_bias: float = 0.3,
    at_most: Label = Label.KNOWN,
    reach: Reach = EVERYTHING,
) -> Bootstrap:
    """What was known at `as_of`, but for what was forgotten or replaced since; a token counts as four characters.

    The same moment gives the same text, so the beginning of a session's prompts stays as it is, restarts included.
    `always_include_tags` are tags or categories. Nothing trusted less than `at_most` is in it. `session` is the one
    that it is for.
    """
    last, found = None, list[Memory]()
    for part in reach.filters(Filter(agent=DEFAULT_AGENT, at_most=at_most)):
        whose, trusted = part.agent or DEFAULT_AGENT, part.at_most
        if include_last_session and last is None:
            last = await standing.last_chat(conn, principal, session, as_of, trusted, whose)
        found += await standing.candidates(conn, principal, as_of, always_include_tags, trusted, whose)
    ranked = sorted(found, key=lambda memory: (-_weight(memory, as_of, recency_bias), -memory.id))
    chosen = _chosen(ranked, top_memories, frozenset(always_include_tags))
    return bootstrap(last, chosen, as_of, max_tokens)


def _chosen(ranked: Sequence[Memory], top: int, always: frozenset[str]) -> list[Memory]:
    return [memory for place, memory in enumerate(ranked) if place < top or memory.pinned or _marks(memory) & always]


def _marks(memory: Memory) -> set[str]:
    return {*memory.tags, *([memory.category.value] if memory.category else [])}


def _weight(memory: Memory, now: datetime, bias: float) -> float:
    """importance · (1 - bias) + recency · bias; what is pinned, core or still to come does not age."""
    at = memory.event_at or memory.created_at
    ageless = memory.pinned or CORE in memory.tags or at > now
    recency = 1.0 if ageless else 0.5 ** ((now - at) / HALF_LIFE)
    return memory.importance * (1 - bias) + recency * bias
