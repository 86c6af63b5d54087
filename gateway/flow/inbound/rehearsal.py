"""The rehearsal: whether the database takes what messages need now, tried and rolled back."""

import asyncio
from dataclasses import dataclass
from uuid import uuid4

from gateway.domain.channels.routing import StartTurn
from gateway.domain.clock import Clock
from gateway.domain.conversation.inbound import LOCAL, Address, Arrival, Inbound, Sender
from gateway.domain.conversation.transcript import Notice
from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.ids import EntryId
from gateway.domain.principals import Label, Role
from gateway.flow.inbound.persist import InboundWriter
from gateway.flow.outbound.parts import parts
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses, outbox
from gateway.store.engine import steps, tasks
from gateway.store.failures import reaching
from gateway.store.transcript import messages

ANSWER_WITHIN = 5.0


class _Rehearsed(SupaclawError):
    """Ends the transaction, of which nothing stays."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Tells a message that cannot be stored from a database that stores none."""

    database: Database
    writer: InboundWriter
    clock: Clock

    async def succeeds(self) -> bool:
        """Whether another message, the owner's in a chat of its own, could be stored and answered now."""
        id = uuid4()
        at = Address("terminal", LOCAL, f"rehearsal-{id}")
        said = Inbound(at, Sender(LOCAL, "rehearsal"), "rehearsal", str(id), self.clock.now())
        try:
            with reaching():  # whatever it says to this message, it would say to any
                async with asyncio.timeout(ANSWER_WITHIN):
                    await self.database.run(lambda tx: self._write(tx, Arrival(EntryId(id), said, said.sent_at)))
        except _Rehearsed:
            return True
        except TryAgainLater:
            pass
        return False

    async def _write(self, tx: Connection, arrival: Arrival) -> None:
        await self.writer.write(tx, arrival, None, Role.OWNER, StartTurn())
        at = await addresses.lock(tx, arrival.inbound.address)
        assert at is not None, "it was just added"
        notice = Notice("rehearsal")
        said = await messages.say(tx, at.session_id, at.principal_id, notice, label=Label.OWNER, address=at.id)
        await outbox.put(tx, at.principal_id, at.id, said.id, parts(notice.text, 100), notice=True)
        if task := await tasks.live_chat(tx, at.session_id):
            await steps.tool_ran(tx, task, at.principal_id, notice.text, 0)
        raise _Rehearsed
