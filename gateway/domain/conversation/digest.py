"""A hash of a conversation so far, by which clients without session ids resume their conversation."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from gateway.domain.conversation.model import ToolCall

SpeakerRole: TypeAlias = Literal["user", "assistant", "system", "tool"]
Told: TypeAlias = tuple[SpeakerRole, str]

EMPTY = ""
"""The digest of an empty conversation."""


def extend(digest: str, role: SpeakerRole, text: str) -> str:
    """The digest after one more text; ignores differences in white space."""
    words = " ".join(text.split())
    return hashlib.sha256(f"{digest}\n{role}\n{words}".encode()).hexdigest()


def of(messages: Iterable[Told]) -> str:
    """The digest of texts in order; ignores system messages."""
    digest = EMPTY
    for role, text in messages:
        if role != "system":
            digest = extend(digest, role, text)
    return digest


def spoken(texts: Sequence[str]) -> str:
    """All the agent's text of one turn: the words before tool calls, then the answer."""
    return "\n\n".join(text.strip() for text in texts if text.strip())


def said(text: str, calls: Sequence[ToolCall]) -> str:
    """The agent's text with the calls handed to the client, whose JSON is normalised."""
    return "\n".join([text, *(f"{call.id} {call.name} {call.canonical}" for call in calls)])
