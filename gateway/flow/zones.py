"""Whose clocks show what: the time zone of each principal."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.ids import PrincipalId
from gateway.flow.people import People
from gateway.workspace.zone import zone_in


@dataclass(frozen=True, slots=True)
class Zones:
    """The owner's is what the configuration says; whoever it says nothing of has it in their own USER.md."""

    config_zone: Callable[[], str | None]
    people: People
    user: Callable[[PrincipalId], str]
    """The text of a principal's USER.md."""

    def of(self, principal: PrincipalId) -> str | None:
        """An IANA name; None while it is not known."""
        configured = self.config_zone() if self.people.is_owner(principal) else None
        return configured or zone_in(self.user(principal))
