"""A person's time zone: offered once while it is unknown, and kept in their USER.md."""

from contextlib import suppress
from dataclasses import dataclass

import structlog

from gateway.domain.channels.channel import Button
from gateway.domain.conversation.inbound import Inbound
from gateway.domain.conversation.transcript import Notice
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.time import is_zone
from gateway.domain.time import zone as named
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.turn.environment import AgentEnvironments
from gateway.store.connection.pool import Database
from gateway.store.delivery import addresses
from gateway.store.people import principals
from gateway.workspace.instructions import with_zone

OFFER = "I don't know your time zone. {channel} says {zone}; /zone {zone} uses it for your times."

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ZoneOffers:
    """Offers people the time zone that their platform names. Messages of programs neither get nor accept an offer."""

    database: Database
    environments: AgentEnvironments
    proactive: ProactiveMessages

    def zone_of(self, principal: PrincipalId) -> str | None:
        """The zone of a person's times, an IANA name; None while none is known."""
        return self.environments.of(principal).zone()

    async def due(self, principal: PrincipalId) -> bool:
        """Whether no zone is known and none was offered; False while the database is unavailable."""
        if self.zone_of(principal) is None:
            with suppress(TryAgainLater):
                return not await self.database.read(lambda conn: principals.zone_offered(conn, principal))
        return False

    async def settle(self, principal: PrincipalId, name: str = "") -> bool:
        """Note the zone, unless one is known, and offer none again; False if that was settled before.

        Raises `ValueError` for an unknown zone, `WorkspaceError` if USER.md can't be changed.
        """
        if name and self.zone_of(principal) is None:
            await self.note(principal, name, Label.OWNER)
        return await self.database.run(lambda tx: principals.settle_zone(tx, principal))

    async def note(self, principal: PrincipalId, name: str, label: Label) -> str | None:
        """Write the zone into USER.md, in words of this label; returns the one that counts. Raises as `settle` does."""
        zone, environment = named(name).key, self.environments.of(principal)
        if path := environment.persona().own.path:
            await environment.workspace.update(path, lambda text: with_zone(text, zone), label, unlocked=True)
        else:
            await environment.workspace.write("USER.md", with_zone("# About the user\n", zone), label, unlocked=True)
        return environment.zone()

    async def offer(self, inbound: Inbound) -> None:
        """Offer the sender of a private message the zone that the platform names, once. Never raises."""
        if not inbound.private or not is_zone(inbound.zone):
            return
        try:
            at = await self.database.read(lambda conn: addresses.find(conn, inbound.address))
            if at and await self.due(at.principal_id) and await self.settle(at.principal_id):
                await self._tell(at.principal_id, inbound)
        except TryAgainLater as exc:
            log.info("zone.not_offered", error=str(exc))
        except Exception:  # the message itself is stored and answered in any case
            log.exception("zone.not_offered")

    async def _tell(self, principal: PrincipalId, inbound: Inbound) -> None:
        use = Button(f"Use {inbound.zone}", f"/zone {inbound.zone}")
        text = OFFER.format(channel=inbound.address.channel.capitalize(), zone=inbound.zone)
        await self.proactive.notify(principal, Notice(text), (use,))
