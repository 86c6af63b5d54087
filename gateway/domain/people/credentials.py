"""Credentials: the scopes of tokens, codes for pairing and linking, and patterns that find secrets in text."""

import re
import secrets
from collections.abc import Set
from enum import StrEnum


class Scope(StrEnum):
    """One permission; `admin` implies all others."""

    CHAT = "chat"
    READ = "read"
    TRIGGER = "trigger"
    MEMORY = "memory"
    FILES = "files"
    ADMIN = "admin"


SCOPE_WORDS = {
    Scope.CHAT: "talk to the agent",
    Scope.READ: "read the status and metrics",
    Scope.TRIGGER: "queue tasks for the agent",
    Scope.MEMORY: "use a memory of its own",
    Scope.FILES: "read the folder shared/",
    Scope.ADMIN: "everything above, and run the gateway",
}
"""The rights of a program, as its person reads them."""


def permits(held: Set[str], needed: Scope) -> bool:
    """Whether `held` includes `needed`, directly, for a folder as in "files:notes", or by `admin`."""
    return Scope.ADMIN in held or needed in {each.partition(":")[0] for each in held}


CREDENTIAL_SHAPES = re.compile(
    r"(?P<kept>\bBearer\s+)[\w.~+/=-]{8,}"
    r"|(?P<bot>\bbot)?\d{6,}:[\w-]{30,}"
    r"|\b(?:sk|claw|xox[abp]|xapp|ghp|AIza)[-_]?[\w-]{12,}"
    r"|(?P<user>://[^\s:/@]+:)[^\s/@]+(?=@)"
)
"""The groups are what may be shown around them."""


CODE_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""No letter or digit that can be taken for another one."""
CODE_LENGTH = 8
CODE_MINUTES = 10
"""How long a code is good, and how long wrong ones keep their giver out."""

_CODE = re.compile(f"[{CODE_ALPHABET}]{{{CODE_LENGTH}}}")


class CodeRefusal(StrEnum):
    """Why a code was refused, in words for its sender."""

    WRONG = "This code isn't valid; it may be mistyped, already used or older than ten minutes."
    LOCKED = "Too many wrong codes; try again in ten minutes."
    ANOTHERS = "This account already belongs to another person; nothing was changed."


def new_code() -> str:
    """Forty random bits."""
    return "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))


def parse_code(text: str) -> str | None:
    """The code somebody typed, in whatever case and groups; None if it cannot be one."""
    code = re.sub(r"[\s-]", "", text[:64]).upper()
    return code if _CODE.fullmatch(code) else None
