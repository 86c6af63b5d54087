"""What a turn is reminded of unasked: a few memories that share rare words with the question, found without a model."""

from collections.abc import Set
from dataclasses import dataclass

import structlog

from gateway.domain.errors import SupaclawError
from gateway.domain.ids import MemoryId, MessageId, PrincipalId
from gateway.domain.memory import Filter, Hit
from gateway.domain.principals import Label, Role
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import recalled
from gateway.store.memory import search
from gateway.store.pool import Database

ROWS, TOKENS = 5, 600
CANDIDATES = 15
"""Rows that are looked at, for some of them are in the prompt already."""
LEAST_WORDS = 0.4
"""A row with a smaller share of the question's rare words says too little to be brought up unasked."""
QUESTION = 1_000
"""Characters at the end of the newest messages that count as the question."""

log = structlog.get_logger(__name__)


def shown_to(role: Role, label: Label) -> Label:
    """Up to which label rows are shown unasked in a conversation of this one.

    Nothing untrusted to the owner, whom one row would taint for good. A group has nothing else: all of its words are.
    """
    return Label.KNOWN if role is Role.OWNER else max(Label.KNOWN, label)


@dataclass(frozen=True, slots=True)
class Visible:
    """What the prompt shows anyway."""

    messages: Set[MessageId]
    memories: Set[MemoryId]

    def __contains__(self, hit: Hit) -> bool:
        return hit.memory.message_id in self.messages or hit.memory.id in self.memories


@dataclass(frozen=True, slots=True)
class Recalled:
    """A block for the prompt, and the memories in it."""

    text: str = ""
    memories: tuple[MemoryId, ...] = ()


async def recall(
    database: Database, principal: PrincipalId, question: str, visible: Visible, *, at_most: Label
) -> Recalled:
    """What fits the question; nothing does, and when the search fails or is too slow.

    Only rows trusted as much as the conversation is: a recall never raises its label.
    """
    words = lexemes(question[-QUESTION:])
    if not words:
        return Recalled()
    try:
        async with database.connection() as conn:
            hits = await search.keyword(conn, principal, words, Filter(at_most=at_most), CANDIDATES)
    except SupaclawError as error:
        log.info("recall.skipped", error=type(error).__name__)
        return Recalled()
    fitting = [hit for hit in hits if hit.words >= LEAST_WORDS and hit not in visible]
    text = recalled(fitting[:ROWS], TOKENS)
    return Recalled(
        text, tuple(hit.memory.id for hit in fitting[: text.count("\n")])
    )  # a line for each, below its mark
