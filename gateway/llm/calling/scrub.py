"""Cleans third-party texts for display and logs."""

import re
from collections.abc import Iterable

MAX_CHARS = 2_000
_KEY_LIKE = re.compile(r"\b(?:sk|gsk|xai|AIza)[-_A-Za-z0-9]{12,}")


def scrub(text: str, secrets: Iterable[str]) -> str:
    """The text as one line of at most 2,000 characters, with these secrets and anything like a key masked."""
    for secret in secrets:
        text = text.replace(secret, "***")
    line = " ".join(_KEY_LIKE.sub("***", text).split())
    return line if len(line) <= MAX_CHARS else f"{line[: MAX_CHARS - 1]}…"
