"""Texts of others, made fit to be shown and logged."""

import re
from collections.abc import Iterable

LONGEST = 2_000
_KEY_LIKE = re.compile(r"\b(?:sk|gsk|xai|AIza)[-_A-Za-z0-9]{12,}")


def scrub(text: str, secrets: Iterable[str]) -> str:
    """One line of at most 2,000 characters, without these secrets and without anything that looks like a key."""
    for secret in secrets:
        text = text.replace(secret, "***")
    line = " ".join(_KEY_LIKE.sub("***", text).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
