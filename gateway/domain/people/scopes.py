"""Scopes: what a credential may do in the web page and the APIs."""

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
    """Whether `held` includes `needed`, directly or by `admin`."""
    return needed in held or Scope.ADMIN in held
