"""Joining: an account that is nobody's yet becomes one more of a person's, by a code that `/link` gave."""

from gateway.domain.access import identity_of
from gateway.domain.codes import Refusal
from gateway.domain.inbound import Inbound
from gateway.domain.principals import Label
from gateway.domain.transcript import Notice
from gateway.flow.live import Live, MessageStored
from gateway.flow.outbound import Outbound
from gateway.flow.people import People
from gateway.store import addresses, links, messages, principals, sessions
from gateway.store.messages import MessageRow
from gateway.store.pool import Connection, Database

JOINED = (
    "This account is one of yours here now, and this chat goes on in the conversation of the other one. "
    "/link off parts them again."
)


class Joining:
    """`/link CODE` from an account without a past here; one that has data already runs the command like any other."""

    def __init__(self, database: Database, people: People, outbound: Outbound, live: Live) -> None:
        self._database = database
        self._people = people
        self._outbound = outbound
        self._live = live

    async def join(self, inbound: Inbound, code: str) -> MessageRow | Refusal | None:
        """What was said to the new account of a known person; None if this account is somebody's already."""
        said = await self._database.run(lambda tx: self._enter(tx, inbound, code))
        if isinstance(said, MessageRow):
            await self._people.refresh(self._database)
            self._live.publish(said.session_id, MessageStored(said.id))
            self._outbound.wake()
        return said

    async def _enter(self, tx: Connection, inbound: Inbound, code: str) -> MessageRow | Refusal | None:
        identity = identity_of(inbound)
        if await principals.find(tx, identity) is not None:
            return None
        link = await links.redeem(tx, identity, code, by=None)
        if isinstance(link, Refusal):
            return link
        person = link.principal_id
        if not self._people.may_join(inbound, person):
            return Refusal.WRONG
        other = await addresses.lock_joined(tx, link.address_id)
        await sessions.lock(tx, other.session_id)
        await principals.add_identity(tx, person, identity)
        at = await addresses.place(tx, inbound.address, person, other.session_id)
        await links.used(tx, code, at.id)
        said = await messages.say(tx, at.session_id, person, Notice(JOINED), label=Label.OWNER, address=at.id)
        await self._outbound.put(tx, at, said.id, JOINED)
        return said
