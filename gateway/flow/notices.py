"""Notices: what the gateway itself has to tell its owner, where the owner wrote last."""

import structlog

from gateway.domain.channel import Button
from gateway.domain.principals import Label
from gateway.domain.transcript import Notice
from gateway.flow.live import Live, MessageStored
from gateway.flow.outbound import Outbound
from gateway.flow.people import People
from gateway.store import addresses, messages, sessions
from gateway.store.messages import MessageRow
from gateway.store.pool import Connection, Database

log = structlog.get_logger(__name__)


class Notices:
    """Writes to the owner without being asked."""

    def __init__(self, database: Database, people: People, outbound: Outbound, live: Live) -> None:
        self._database = database
        self._people = people
        self._outbound = outbound
        self._live = live

    async def tell_owner(self, text: str, buttons: tuple[Button, ...] = ()) -> None:
        """Store and send a notice; an owner who has never written anywhere is told by the log alone."""
        stored = await self._database.run(lambda tx: self._store(tx, text, buttons))
        if stored is None:
            log.warning("owner.unreachable", notice=text)
            return
        self._live.publish(stored.session_id, MessageStored(stored.id))
        self._outbound.wake()

    async def _store(self, tx: Connection, text: str, buttons: tuple[Button, ...]) -> MessageRow | None:
        last = await addresses.last_spoken_at(tx, self._people.owner.id, private=True)
        if last is None:
            return None
        at = await addresses.lock_by_id(tx, last.id)
        if not self._people.is_owner(at.principal_id):  # it was handed over meanwhile
            return None
        await sessions.lock(tx, at.session_id)
        said = await messages.say(tx, at.session_id, at.principal_id, Notice(text), label=Label.OWNER, address=at.id)
        await self._outbound.put(tx, at, said.id, text, buttons=buttons)
        return said
