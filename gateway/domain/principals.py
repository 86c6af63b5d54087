"""Who is talking, and how far what they say can be trusted."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from gateway.domain.ids import PrincipalId


class Role(StrEnum):
    """What a sender is to the owner of this gateway."""

    OWNER = "owner"
    MEMBER = "member"
    STRANGER = "stranger"


class Label(IntEnum):
    """Trust of a text; the label of a session is the highest of what it holds and never falls."""

    OWNER = 0
    KNOWN = 1
    UNTRUSTED = 2


@dataclass(frozen=True, slots=True)
class Principal:
    """A person (or a group, which counts as one) with data of its own."""

    id: PrincipalId
    role: Role
    name: str


def label_of(role: Role, *, private: bool) -> Label:
    """The trust a message starts with: anyone can write into a group, so a group is never trusted."""
    if not private or role is Role.STRANGER:
        return Label.UNTRUSTED
    return Label.OWNER if role is Role.OWNER else Label.KNOWN
