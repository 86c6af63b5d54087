"""People's roles, and the trust labels of texts."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from gateway.domain.ids import PrincipalId


class Role(StrEnum):
    """A sender's role in this gateway."""

    OWNER = "owner"
    MEMBER = "member"
    STRANGER = "stranger"


class Label(IntEnum):
    """How far a text is trusted (higher: less); a session has the highest label of its texts, which never falls."""

    OWNER = 0
    KNOWN = 1
    UNTRUSTED = 2


@dataclass(frozen=True, slots=True)
class Principal:
    """A person (or a group, which counts as one) with data of its own."""

    id: PrincipalId
    role: Role
    name: str


def label_of(role: Role, *, private: bool, as_owner: bool) -> Label:
    """The initial label of a message; groups are never trusted, since anyone can write there.

    `as_owner` is false for what a program says with a token of the owner's: the person it works for is known.
    """
    if not private or role is Role.STRANGER:
        return Label.UNTRUSTED
    return Label.OWNER if role is Role.OWNER and as_owner else Label.KNOWN
