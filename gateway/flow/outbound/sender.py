"""The sender: committed messages are sent in order, each address on a lane of its own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import structlog
from cachetools import LRUCache

from gateway.domain.channels.channel import Capabilities, Channel, Outgoing
from gateway.domain.conversation.inbound import OWN_CHANNELS, Address
from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.ids import AddressId, MessageId, OutboxId
from gateway.flow.engine import Engine
from gateway.flow.outbound.delivery import Delivery, Sent
from gateway.flow.outbound.parts import Attachments, Roots, parts
from gateway.flow.secrets.guard import Clean
from gateway.logs.errors import logged
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses, outbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.outbox import OutboxPart, OutboxRow

POLL_SECONDS = 2.0
LANES = 200
"""Most addresses that are sent to concurrently."""
MAX_ADDRESSES_REMEMBERED = 1_000
ANYWHERE = Capabilities(max_text=4000, max_marks=100)
"""The limits of every messenger, for messages to a channel that is closed at the moment."""

log = structlog.get_logger(__name__)


@dataclass
class Outbound:
    """The sender: one lane per address, so that a slow chat delays nobody else."""

    engine: Engine
    roots: Roots
    clean: Clean

    def __post_init__(self) -> None:
        self._delivery = Delivery(self.engine.database, self.engine.failpoints, self.roots)
        self._channels: dict[str, Channel] = {}
        self._met: set[str] = set()
        self._idle = asyncio.Event()
        self._busy: dict[AddressId, asyncio.Task[None]] = {}
        self._addresses: LRUCache[AddressId, AddressRow] = LRUCache(MAX_ADDRESSES_REMEMBERED)
        self._passed_over = False
        """Whether the last look left something out that may be due: of a busy address, or beyond the free lanes."""
        self._left: set[OutboxId] = set()
        """Rows that this process may have left in the state `sending`, although no lane has them."""

    def channel(self, at: AddressRow | Address) -> Channel | None:
        """The channel of an address; None while it is closed, and for our own channels, which show the transcript."""
        return self._channels.get(at.channel)

    async def put(
        self, tx: Connection, at: AddressRow, message: MessageId, text: str, **more: Unpack[Attachments]
    ) -> None:
        """Queue a message, as `parts` makes it."""
        if queued := self.parts(at, text, **more):
            await outbox.put(tx, at.principal_id, at.id, message, queued)

    def parts(self, at: AddressRow, text: str, **more: Unpack[Attachments]) -> Sequence[OutboxPart]:
        """A message in parts for its channel; our own channels show the transcript and need none.

        `reply_to` is the platform's id of the answered message, shown only in groups.
        """
        if at.channel in OWN_CHANNELS:
            return ()
        channel = self.channel(at)
        able = channel.capabilities if channel else ANYWHERE
        if at.private:
            more = {**more, "reply_to": None}
        return parts(self.clean(text), able.max_text, able.max_marks, **more)

    async def adopt(self, name: str, channel: Channel) -> None:
        """Send through this open channel from now on, after settling parts that a crash left without a receipt."""
        if name not in self._met:
            left = await self.engine.database.read(lambda conn: outbox.left_sending(conn, name))
            for row in left:
                await self._delivery.resume(channel, row)
                self.engine.signals.attempted.publish(row.message_id)
            self._met.add(name)
        self._channels[name] = channel
        self.engine.signals.outbox.set()

    def abandon(self, name: str) -> None:
        """Stop sending through a channel that is closed; its queue waits."""
        self._channels.pop(name, None)

    def part(self, name: str) -> None:
        """Forget a channel that another gateway may use now."""
        self._met.discard(name)

    async def send_past(self, message: Outgoing, seconds: float) -> None:
        """Send a message past the outbox if its channel is open, once, without retries. Never raises."""
        if (channel := self.channel(message.address)) is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await channel.send(message)
        except (SupaclawError, TimeoutError) as exc:
            log.info("outbound.not_sent_past", channel=message.address.channel, error=str(exc))
        except Exception:  # other chats must still be told
            log.exception("outbound.not_sent_past", channel=message.address.channel)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._note_commits()
                self.engine.signals.outbox.clear()
                # sends on their way must go on
                with logged(log, "outbound.broken"), logged(log, "outbound.waits", TryAgainLater):
                    await self._start_due(group)
                await self.engine.signals.outbox.wait(POLL_SECONDS)

    async def drain(self, seconds: float) -> None:
        """Send committed messages, at most for `seconds`."""
        self._note_commits()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning("outbound.left", addresses=len(self._busy))

    def _note_commits(self) -> None:
        if self.engine.signals.outbox.is_set():
            self._idle.clear()

    async def _start_due(self, group: asyncio.TaskGroup) -> None:
        busy, free = list(self._busy), LANES - len(self._busy)
        self._passed_over = True
        if not free:
            return
        async with self.engine.database.connection() as conn:
            due = await outbox.due(conn, list(self._channels), busy, free, list(self._left))
        self._passed_over = bool(busy) or len(due) == free
        for row in due:
            self._busy[row.address_id] = group.create_task(self._send_all(row), name=f"send {row.address_id}")
        self._rest()

    def _rest(self) -> None:
        """Be idle if nothing is being sent and nothing was committed since the last look."""
        if not (self._busy or self._passed_over or self.engine.signals.outbox.is_set()):
            self._idle.set()

    async def _send_all(self, row: OutboxRow) -> None:
        """Send the due parts of one address, one after another."""
        due: OutboxRow | None = row
        look_again = True
        try:
            at = await self._address(row.address_id)
            while due and (channel := self.channel(at)) and (sent := await self._send(channel, at, due)):
                due = sent.following
            look_again = due is not None
        except TryAgainLater as exc:
            log.warning("outbound.waits", error=str(exc))
            await asyncio.sleep(POLL_SECONDS)
        except Exception:
            log.exception("outbound.broken", outbox_id=row.id)
            await asyncio.sleep(POLL_SECONDS)
        finally:
            del self._busy[row.address_id]
            if look_again or self._passed_over:
                self.engine.signals.outbox.set()
            self._rest()

    async def _address(self, id: AddressId) -> AddressRow:
        """An address, read once: the sender needs only the parts of it that never change."""
        if (known := self._addresses.get(id)) is None:
            known = self._addresses[id] = await self.engine.database.read(lambda conn: addresses.get(conn, id))
        return known

    async def _send(self, channel: Channel, at: AddressRow, row: OutboxRow) -> Sent | None:
        self._left.add(row.id)
        try:
            sent = await self._delivery.send(channel, at, row)
            self._left.discard(row.id)
        finally:
            self.engine.signals.attempted.publish(row.message_id)
        return sent
