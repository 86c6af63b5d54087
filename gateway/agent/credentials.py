"""The secrets that tools put into requests, without their values in between."""

from collections.abc import Callable, Collection
from typing import Protocol

from gateway.domain.ids import PrincipalId
from gateway.secrets.injection import Usable


class Credentials(Protocol):
    """The secrets of people, as a running gateway has opened them."""

    def finder(self, principal: PrincipalId) -> Callable[[str], Usable | None]:
        """What may be put into requests of this person's tools."""
        ...

    async def used(self, names: Collection[str], principal: PrincipalId, by: str = "") -> None:
        """Note in the audit trail that a request with these is about to leave."""
        ...

    async def renewed(self, name: str, value: str, principal: PrincipalId) -> None:
        """Store what replaces a value, bound as that one is."""
        ...

    def hide(self, name: str, principal: PrincipalId, value: str) -> None:
        """Keep a value that was made from this secret, in place of the one before, out of texts."""
        ...
