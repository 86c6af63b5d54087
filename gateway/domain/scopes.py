"""What a credential of the web and API surface may do."""

from collections.abc import Set
from enum import StrEnum


class Scope(StrEnum):
    """One permission; `admin` implies all others."""

    CHAT = "chat"
    READ = "read"
    TRIGGER = "trigger"
    MEMORY = "memory"
    ADMIN = "admin"


def permits(held: Set[Scope], needed: Scope) -> bool:
    """Whether these scopes allow what needs that one."""
    return needed in held or Scope.ADMIN in held
