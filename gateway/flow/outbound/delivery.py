"""One attempt to deliver a part: it is sent, delayed, refused or in doubt, and never blindly repeated."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from random import uniform
from typing import TypeVar

import structlog

from gateway.config.failpoints import Failpoints, Step
from gateway.domain.channels.channel import Channel, Outgoing, SendDelayed, SendFailed, SendUncertain
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import OutboxId
from gateway.domain.work.tasks import backoff
from gateway.flow.outbound.parts import NotAttachable, Roots, outgoing_file, send_notice, whereabouts
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses, outbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.outbox import OutboxRow
from gateway.store.files import files
from gateway.store.files.files import FileRow
from gateway.store.transcript import messages, sessions
from gateway.store.transcript.messages import MessageRow

POLL_SECONDS = 2.0
TRIES = 8
"""Tries of a part that our own error stops; refusals and delays of a platform don't count."""
RECORD_TRIES = 3
"""Tries of a write that fails although the database works."""
SEND_WITHIN, SEND_FILE_WITHIN = 120.0, 1800.0
"""Seconds before a hanging send is given up, because it blocks a lane."""
INTERRUPTED = "I was restarted while sending my last answer; /last shows it again."
UNCONFIRMED = "I couldn't confirm that my last answer arrived; /last shows it again."
POST_IN_DOUBT = "I couldn't confirm that my last message here arrived; ask me for it if you don't see it."

log = structlog.get_logger(__name__)

Recorded = TypeVar("Recorded")


@dataclass(frozen=True, slots=True)
class Sent:
    """A part was sent, and this one of its address is due next."""

    following: OutboxRow | None


class Delivery:
    """Sends single parts and records the results."""

    def __init__(self, database: Database, failpoints: Failpoints, roots: Roots) -> None:
        self._database = database
        self._failpoints = failpoints
        self._roots = roots
        self._unseen: set[OutboxId] = set()
        """Parts that certainly nobody has seen: every try was a clear delay."""

    async def send(self, channel: Channel, at: AddressRow, row: OutboxRow) -> Sent | None:
        """Send one part; None if it was not sent. A part that is `sending` lost its receipt."""
        if row.state == "sending":
            settle = self.resume if row.attempts < TRIES else self._doubt
            await settle(channel, row, "its delivery couldn't be recorded", UNCONFIRMED)
            return None
        file = await self._file_of(row)
        try:
            message = await self._outgoing(channel, at, row, file)
        except NotAttachable as exc:
            await self._without_file(row, exc)
            return None
        if not await self._announced(row):
            return None
        self._unseen.discard(row.id)
        self._failpoints.reach(Step.OUTBOX_SENDING)
        try:
            async with asyncio.timeout(SEND_FILE_WITHIN if message.file else SEND_WITHIN):
                platform_id = await channel.send(message)
        except SendDelayed as exc:
            if not message.again:
                self._unseen.add(row.id)
            await self._delay(row, exc)
        except SendFailed as exc:
            await self._refused(row, file, exc)
        except SendUncertain as exc:
            await self._unsure(channel, row, exc)
        except Exception as exc:
            log.exception("outbound.broken", outbox_id=row.id, channel=at.channel)
            doubt = SendUncertain(f"{type(exc).__name__}: {exc}", lasting=row.attempts + 1 >= TRIES)
            await self._unsure(channel, row, doubt)
        else:
            self._failpoints.reach(Step.OUTBOX_REQUESTED)
            following = await self._record(row, lambda conn: outbox.mark_sent(conn, row.id, platform_id))
            self._failpoints.reach(Step.OUTBOX_SENT)
            return Sent(following)
        return None

    async def resume(
        self, channel: Channel, row: OutboxRow, error: str = "interrupted by a restart", text: str = INTERRUPTED
    ) -> None:
        """Handle a part without a receipt: it may have been shown, so it is repeated only where that is safe."""
        if _repeatable(channel, row):
            await self._record(row, lambda conn: outbox.delay(conn, row.id, 0, error))
        else:
            await self._doubt(channel, row, error, text)

    async def _file_of(self, row: OutboxRow) -> FileRow | None:
        file = row.file_id
        return await self._database.read(lambda conn: files.by_id(conn, row.principal_id, file)) if file else None

    async def _outgoing(self, channel: Channel, at: AddressRow, row: OutboxRow, file: FileRow | None) -> Outgoing:
        most = channel.capabilities.max_file
        return Outgoing(
            at.address,
            row.text,
            f"supaclaw-{row.id}",
            at.private,
            again=row.attempts > 0 and row.id not in self._unseen,
            file=await outgoing_file(self._roots(row.principal_id), file, most) if file else None,
            buttons=row.buttons if channel.capabilities.buttons else (),
            reply_to=row.reply_to,
        )

    async def _announced(self, row: OutboxRow) -> bool:
        """Commit that it is being sent; if that fails, it waits."""
        try:
            return await self._database.run_alone(lambda conn: outbox.mark_sending(conn, row.id))
        except Exception as exc:
            if not isinstance(exc, TryAgainLater):
                log.exception("outbound.broken", outbox_id=row.id)
            await self._delay(row, SendDelayed(f"{type(exc).__name__}: {exc}"))
            return False

    async def _refused(self, row: OutboxRow, file: FileRow | None, exc: SendFailed) -> None:
        """Record a permanent refusal; a text about the file follows a refused file."""
        async with self._of_its_run(row):
            log.warning("outbound.refused", outbox_id=row.id, error=str(exc))
        if file is not None:
            await self._without_file(row, NotAttachable(f"{file.name} was refused: {exc} {whereabouts(file)}"))
        else:
            await self._record(row, lambda conn: outbox.mark_failed(conn, row.id, str(exc)))

    async def _without_file(self, row: OutboxRow, why: NotAttachable) -> None:
        """Send the caption and a text about the file instead."""
        text = f"{row.text}\n\n{why}".strip()
        await self._record(row, lambda conn: outbox.replace_file(conn, row.id, text, str(why)))

    async def _delay(self, row: OutboxRow, exc: SendDelayed) -> None:
        """Wait, as the platform asked or because it can't be reached; there is no limit."""
        least = exc.retry_after if exc.retry_after > 1 else backoff(min(row.attempts + 1, 5))
        delay = least + uniform(0, min(least / 4, 5))  # many chats may not come back all at once
        async with self._of_its_run(row):
            log.info("outbound.delayed", outbox_id=row.id, seconds=delay, error=str(exc))
        await self._record(row, lambda conn: outbox.delay(conn, row.id, delay, str(exc)))

    async def _unsure(self, channel: Channel, row: OutboxRow, exc: SendUncertain) -> None:
        if _repeatable(channel, row) and not exc.lasting:
            await self._delay(row, SendDelayed(str(exc), backoff(row.attempts + 1)))
        else:
            await self._doubt(channel, row, str(exc), UNCONFIRMED)

    async def _doubt(self, channel: Channel, row: OutboxRow, error: str, text: str) -> None:
        """Mark it uncertain and report that once, in the same transaction; a notice gets no notice."""
        async with self._of_its_run(row):
            log.warning("outbound.uncertain", outbox_id=row.id, error=error)
        await self._record(row, lambda tx: self._admit(tx, channel, row, error, text), single=False)

    async def _admit(self, tx: Connection, channel: Channel, row: OutboxRow, error: str, text: str) -> None:
        at = await addresses.lock_by_id(tx, row.address_id)
        await sessions.lock(tx, at.session_id)
        if not await outbox.mark_uncertain(tx, row.id, error):
            return
        if row.notice or await outbox.is_another_part_uncertain(tx, row):
            return
        doubted = await messages.get(tx, row.message_id)
        notice = POST_IN_DOUBT if doubted is not None and not doubted.final else text
        await send_notice(tx, at, notice, channel.capabilities.max_text)

    async def _record(
        self, row: OutboxRow, write: Callable[[Connection], Awaitable[Recorded]], *, single: bool = True
    ) -> Recorded:
        """Record the result, however long the database is unavailable: only this process knows it.

        `single`: by one statement.
        """
        failures, run = 0, self._database.run_alone if single else self._database.run
        while True:
            try:
                return await run(write)
            except TryAgainLater as exc:
                log.warning("outbound.waits", error=str(exc))
            except Exception as exc:
                failures = failures + 1 if await self._can_write(row) else 0
                if failures == RECORD_TRIES:
                    raise
                log.warning("outbound.not_recorded", error=f"{type(exc).__name__}: {exc}")
            await asyncio.sleep(POLL_SECONDS)

    async def _can_write(self, row: OutboxRow) -> bool:
        """Whether the database can write this row."""
        with suppress(Exception):
            await self._database.run(lambda conn: outbox.touch(conn, row.id))
            return True
        return False

    @asynccontextmanager
    async def _of_its_run(self, row: OutboxRow) -> AsyncIterator[None]:
        """Bind the message's session and task to log events."""
        said: MessageRow | None = None
        with suppress(Exception):  # it keeps nothing from being recorded
            said = await self._database.read(lambda conn: messages.get(conn, row.message_id))
        ids = {"session_id": said and said.session_id, "task_id": said and said.task_id}
        with structlog.contextvars.bound_contextvars(**{name: str(id) for name, id in ids.items() if id}):
            yield


def _repeatable(channel: Channel, row: OutboxRow) -> bool:
    """Whether a part that may have been shown is sent again: on channels that show it once, and for notices."""
    return channel.capabilities.idempotent_send or row.notice
