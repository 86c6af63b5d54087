"""Short codes that people read out, type and forget: for letting somebody in and for joining accounts."""

import re
import secrets
from enum import StrEnum

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""No letter or digit that can be taken for another one."""
LENGTH = 8
MINUTES = 10
"""How long a code is good, and how long wrong ones keep their giver out."""

_CODE = re.compile(f"[{ALPHABET}]{{{LENGTH}}}")


class Refusal(StrEnum):
    """Why a code opens nothing, in words for whoever gave it."""

    WRONG = "This code isn't valid; it may be mistyped, already used or older than ten minutes."
    LOCKED = "Too many wrong codes; try again in ten minutes."
    ANOTHERS = "This account already belongs to another person; nothing was changed."


def new_code() -> str:
    """Forty random bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def parse_code(text: str) -> str | None:
    """The code somebody typed, in whatever case and groups; None if it cannot be one."""
    code = re.sub(r"[\s-]", "", text[:64]).upper()
    return code if _CODE.fullmatch(code) else None
