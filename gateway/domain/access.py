"""Who may talk: decided from platform ids alone."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from gateway.domain.inbound import Inbound
from gateway.domain.principals import Role

AccessMode = Literal["owner", "allowlist", "pairing", "open"]


@dataclass(frozen=True, slots=True)
class Access:
    """A channel's rule. `"*"` in `allow` is the same as mode `open`: anyone is a member."""

    mode: AccessMode = "allowlist"
    allow: frozenset[str] = frozenset()

    @property
    def anyone(self) -> bool:
        """Strangers become members."""
        return self.mode == "open" or (self.mode != "owner" and "*" in self.allow)


def identity_of(inbound: Inbound) -> str:
    """How a principal is known: the channel and the platform's id of the sender."""
    return f"{inbound.address.channel}:{inbound.sender.id}"


def group_identity_of(inbound: Inbound) -> str:
    """A group counts as one principal."""
    return f"{inbound.address.channel}:group:{inbound.address.chat}"


def role_of(inbound: Inbound, owner: Collection[str], access: Access) -> Role:
    """What the sender is to the owner, whose identities are given."""
    if identity_of(inbound) in owner:
        return Role.OWNER
    if access.anyone or (access.mode != "owner" and inbound.sender.id in access.allow):
        return Role.MEMBER
    return Role.STRANGER
