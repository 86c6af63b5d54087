"""What was said so far, as one hash: how a client that keeps no session id finds its conversation again."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

EMPTY = ""
"""The digest of a conversation in which nothing was said."""


def extend(digest: str, role: Literal["user", "assistant"], text: str) -> str:
    """The digest after one more text; how the text is spaced does not count."""
    words = " ".join(text.split())
    return hashlib.sha256(f"{digest}\n{role}\n{words}".encode()).hexdigest()


def of(messages: Iterable[tuple[Literal["user", "assistant", "system"], str]]) -> str:
    """The digest of texts in order; standing instructions are not part of what was said."""
    digest = EMPTY
    for role, text in messages:
        if role != "system":
            digest = extend(digest, role, text)
    return digest


def spoken(texts: Sequence[str]) -> str:
    """All that the agent said in one turn, as one text: words before tool calls, then the answer."""
    return "\n\n".join(text.strip() for text in texts if text.strip())
