"""Outbound: what was committed is sent, in order per address, retried, receipted, never blindly repeated."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from gateway.config.failpoints import Failpoints, Step
from gateway.domain.channel import Channel, Outgoing, SendDelayed, SendFailed, SendUncertain
from gateway.domain.errors import DatabaseDown, TryAgainLater
from gateway.domain.ids import AddressId, MessageId
from gateway.domain.inbound import Address
from gateway.domain.principals import Label
from gateway.domain.splitting import split
from gateway.domain.tasks import backoff
from gateway.domain.transcript import Notice
from gateway.flow.people import OWN_CHANNELS
from gateway.flow.wakeup import Wakeup
from gateway.store import addresses, messages, outbox, sessions
from gateway.store.addresses import AddressRow
from gateway.store.outbox import OutboxRow
from gateway.store.pool import Connection, Database

POLL_SECONDS = 2.0
LANES = 200
"""Addresses that are sent to at once."""
TRIES = 8
NOTICE_TRIES = 3
MAX_TEXT_ANYWHERE = 4000
"""What every messenger takes, in UTF-16 units: for answers to a channel that is shut at the moment."""
INTERRUPTED = "I was restarted while sending my last answer; /last shows it again."
UNCONFIRMED = "I could not confirm that my last answer arrived; /last shows it again."

log = structlog.get_logger(__name__)


class Outbound:
    """The sender: one lane per address, so that a slow chat delays nobody else."""

    def __init__(self, database: Database, failpoints: Failpoints) -> None:
        self._database = database
        self._channels: dict[str, Channel] = {}
        self._met: set[str] = set()
        self._failpoints = failpoints
        self._awake = Wakeup()
        self._idle = asyncio.Event()
        self._busy: dict[AddressId, asyncio.Task[None]] = {}

    def channel(self, at: AddressRow | Address) -> Channel | None:
        """The messenger behind an address; None while it is shut, and where people read the transcript itself."""
        return self._channels.get(at.channel)

    def wake(self) -> None:
        """Something was committed for sending."""
        self._awake.set()
        self._idle.clear()

    async def put(self, tx: Connection, at: AddressRow, message: MessageId, text: str, *, notice: bool = False) -> None:
        """Queue a message, split for its channel; where people read the transcript itself, nothing has to be sent."""
        if at.channel in OWN_CHANNELS:
            return
        channel = self.channel(at)
        parts = split(text, channel.capabilities.max_text if channel else MAX_TEXT_ANYWHERE)
        await outbox.put(tx, at.principal_id, at.id, message, parts, notice=notice)

    async def adopt(self, name: str, channel: Channel) -> None:
        """Send through this channel, which is open, from now on.

        The first time since the start, what a crash left on its way there is looked at: it may have been shown, so it
        is repeated only where that is safe.
        """
        left: list[OutboxRow] = []
        if name not in self._met:
            async with self._database.connection() as conn:
                left = await outbox.left_sending(conn, name)
        self._met.add(name)
        self._channels[name] = channel
        for row in left:
            if row.attempts < _tries(channel, row):
                await self._again(row)
            else:
                await self._doubt(row, "interrupted by a restart", INTERRUPTED)
        self.wake()

    def abandon(self, name: str) -> None:
        """The channel is shut; what is queued for it waits."""
        self._channels.pop(name, None)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._awake.clear()
                try:
                    await self._start_due(group)
                except TryAgainLater as exc:
                    log.warning("outbound.waits", error=str(exc))
                except Exception:  # it may not take down what is on its way
                    log.exception("outbound.broken")
                await self._awake.wait(POLL_SECONDS)

    async def drain(self, seconds: float) -> None:
        """Send what is committed, for that long at most."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning("outbound.left", addresses=len(self._busy))

    async def _start_due(self, group: asyncio.TaskGroup) -> None:
        async with self._database.connection() as conn:
            due = await outbox.due(conn, list(self._channels), list(self._busy))
        if not due and not self._busy:
            self._idle.set()
        for row in due[: LANES - len(self._busy)]:
            self._busy[row.address_id] = group.create_task(self._send_all(row), name=f"send {row.address_id}")

    async def _send_all(self, row: OutboxRow) -> None:
        """The parts that are due at one address, one after another."""
        try:
            async with self._database.connection() as conn:
                at = await addresses.get(conn, row.address_id)
            due: OutboxRow | None = row
            while due is not None and await self._send(at, due):
                async with self._database.connection() as conn:
                    due = await outbox.next_for(conn, at.id)
        except DatabaseDown as exc:
            log.warning("outbound.waits", error=str(exc))
        except Exception:
            log.exception("outbound.broken", outbox_id=row.id)
            await asyncio.sleep(POLL_SECONDS)
        finally:
            del self._busy[row.address_id]
            self.wake()

    @asynccontextmanager
    async def _of_its_run(self, row: OutboxRow) -> AsyncIterator[None]:
        """What is logged of a trouble goes into the log of the session that the message was said in."""
        try:
            async with self._database.connection() as conn:
                said = await messages.get(conn, row.message_id)
        except DatabaseDown:
            said = None
        ids = {"session_id": said and said.session_id, "task_id": said and said.task_id}
        with structlog.contextvars.bound_contextvars(**{name: str(id) for name, id in ids.items() if id}):
            yield

    async def _send(self, at: AddressRow, row: OutboxRow) -> bool:
        """Send one part; whether the next may follow at once."""
        channel = self._channels.get(at.channel)
        if channel is None or not await self._announced(row):
            return False
        self._failpoints.reach(Step.OUTBOX_SENDING)
        try:
            platform_id = await channel.send(Outgoing(at.address, row.text, f"supaclaw-{row.id}", at.private))
        except SendDelayed as exc:
            return await self._delay(row, exc)
        except SendFailed as exc:
            return await self._refused(row, exc)
        except SendUncertain as exc:
            return await self._unsure(channel, row, exc)
        except Exception as exc:
            log.exception("outbound.broken", outbox_id=row.id, channel=at.channel)
            return await self._unsure(channel, row, SendUncertain(f"{type(exc).__name__}: {exc}"))
        self._failpoints.reach(Step.OUTBOX_REQUESTED)
        await self._record(lambda conn: outbox.sent(conn, row.id, platform_id))
        self._failpoints.reach(Step.OUTBOX_SENT)
        return True

    async def _announced(self, row: OutboxRow) -> bool:
        """Commit that it is being sent; if that is in doubt, nothing has left yet, and it simply waits."""
        try:
            async with self._database.connection() as conn:
                return await outbox.sending(conn, row.id)
        except DatabaseDown as exc:
            return await self._delay(row, SendDelayed(str(exc)))

    async def _refused(self, row: OutboxRow, exc: SendFailed) -> bool:
        async with self._of_its_run(row):
            log.warning("outbound.refused", outbox_id=row.id, error=str(exc))
        await self._record(lambda conn: outbox.failed(conn, row.id, str(exc)))
        return True

    async def _delay(self, row: OutboxRow, exc: SendDelayed) -> bool:
        """The platform asked to wait, or could not be reached: an outage of any length loses nothing."""
        delay = max(exc.retry_after, backoff(min(row.attempts + 1, 5)) if exc.retry_after <= 1 else 0)
        async with self._of_its_run(row):
            log.info("outbound.delayed", outbox_id=row.id, seconds=delay, error=str(exc))
        await self._record(lambda conn: outbox.delayed(conn, row.id, delay, str(exc)))
        return False

    async def _again(self, row: OutboxRow) -> None:
        await self._record(lambda conn: outbox.delayed(conn, row.id, 0, "interrupted by a restart"))

    async def _record(self, write: Callable[[Connection], Awaitable[None]]) -> None:
        """Write what the platform said, however long the database is away: only this process knows it."""
        while True:
            try:
                return await self._database.run(write)
            except TryAgainLater as exc:
                log.warning("outbound.waits", error=str(exc))
                await asyncio.sleep(POLL_SECONDS)

    async def _unsure(self, channel: Channel, row: OutboxRow, exc: SendUncertain) -> bool:
        if row.attempts + 1 < _tries(channel, row):
            return await self._delay(row, SendDelayed(str(exc)))
        await self._doubt(row, str(exc), UNCONFIRMED)
        return True

    async def _doubt(self, row: OutboxRow, error: str, text: str) -> None:
        """Mark it uncertain and say so once, in the same transaction; a notice gets no notice."""
        async with self._of_its_run(row):
            log.warning("outbound.uncertain", outbox_id=row.id, error=error)
        await self._record(lambda tx: self._admit(tx, row, error, text))
        self.wake()

    async def _admit(self, tx: Connection, row: OutboxRow, error: str, text: str) -> None:
        at = await addresses.lock_by_id(tx, row.address_id)
        await sessions.lock(tx, at.session_id)
        if not await outbox.uncertain(tx, row.id, error):
            return
        if not row.notice and not await outbox.doubted_before(tx, row):
            said = await messages.say(
                tx, at.session_id, at.principal_id, Notice(text), label=Label.OWNER, address=at.id
            )
            await self.put(tx, at, said.id, text, notice=True)


def _tries(channel: Channel, row: OutboxRow) -> int:
    """How often a send that may have happened is made: an answer once, a notice rather twice than not at all."""
    if channel.capabilities.idempotent_send:
        return TRIES
    return NOTICE_TRIES if row.notice else 1
