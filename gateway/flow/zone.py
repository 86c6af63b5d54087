"""A person's time zone: offered once while none is known, and kept in their USER.md."""

from contextlib import suppress
from dataclasses import dataclass

from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.zones import zone as named
from gateway.flow.turn.environment import AgentEnvironments
from gateway.store.people import principals
from gateway.store.pool import Database
from gateway.workspace.zone import with_zone


@dataclass(frozen=True, slots=True)
class ZoneOffers:
    """Offers are for people themselves: what a program says with a token neither makes nor answers one."""

    database: Database
    environments: AgentEnvironments

    async def due(self, principal: PrincipalId) -> bool:
        """Whether no zone is known and none was offered; False while the database cannot tell."""
        if self.environments.of(principal).zone() is None:
            with suppress(TryAgainLater):
                async with self.database.connection() as conn:
                    return not await principals.zone_offered(conn, principal)
        return False

    async def settle(self, principal: PrincipalId, name: str = "") -> None:
        """Note the zone, unless one is known already, and offer none again.

        Raises `ValueError` for what is not a zone, `WorkspaceError` if USER.md cannot be changed.
        """
        if name:
            await self._note(principal, named(name).key)
        await self.database.run(lambda tx: principals.settle_zone(tx, principal))

    async def _note(self, principal: PrincipalId, name: str) -> None:
        environment = self.environments.of(principal)
        if environment.zone() is not None:
            return
        if path := environment.persona().own.path:
            await environment.workspace.update(path, lambda text: with_zone(text, name), Label.OWNER)
        else:
            await environment.workspace.write("USER.md", with_zone("# About the user\n", name), Label.OWNER)
