"""What a turn is reminded of unasked: a few memories that share rare words with the question, found without a model."""

from collections.abc import Set
from dataclasses import dataclass

from gateway.domain.ids import MemoryId, MessageId, PrincipalId
from gateway.domain.memory import Memory
from gateway.domain.principals import Label, Role
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import recalled
from gateway.store.connection.pool import Connection
from gateway.store.memory import recalling

ROWS, TOKENS = 5, 600
CANDIDATES = 15
"""Rows that are looked at, for some of them are in the prompt already."""
LEAST_WORDS = 0.4
"""A row with a smaller share of the question's rare words says too little to be brought up unasked."""
QUESTION = 1_000
"""Characters at the end of the newest messages that count as the question."""


def shown_to(role: Role, label: Label) -> Label:
    """Up to which label rows are shown unasked in a conversation of this one.

    Nothing untrusted to the owner, whom one row would taint for good. A group has nothing else: all of its words are.
    """
    return Label.KNOWN if role is Role.OWNER else max(Label.KNOWN, label)


@dataclass(frozen=True, slots=True)
class Visible:
    """What the prompt shows anyway, or is not to show."""

    messages: Set[MessageId]
    memories: Set[MemoryId]

    def __contains__(self, memory: Memory) -> bool:
        return memory.message_id in self.messages or memory.id in self.memories


@dataclass(frozen=True, slots=True)
class Recalled:
    """A block for the prompt, and the memories in it."""

    text: str = ""
    memories: tuple[MemoryId, ...] = ()


async def recall(
    conn: Connection, principal: PrincipalId, question: str, visible: Visible, *, at_most: Label
) -> Recalled:
    """What fits the question; nothing if the search is too slow.

    Only rows trusted as much as the conversation is: a recall never raises its label.
    """
    words = lexemes(question[-QUESTION:])
    if not words:
        return Recalled()
    found = await recalling.recalled(conn, principal, words, at_most, CANDIDATES, LEAST_WORDS)
    fitting = [memory for memory in found if memory not in visible][:ROWS]
    text = recalled(fitting, TOKENS)
    lines = text.count("\n")  # one for each memory, below the mark
    return Recalled(text, tuple(memory.id for memory in fitting[:lines]))
