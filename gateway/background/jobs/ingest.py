"""`ingest`: the files of a message are fetched, stored and read, so that a turn finds them beside its words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import structlog

from gateway.background.cpu.extraction import TextExtraction
from gateway.background.jobs import Services
from gateway.config.failpoints import Step
from gateway.domain.channels.channel import FetchDelayed, FetchFailed
from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import MessageId, SessionId
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.files.uploads import UploadRefused
from gateway.flow.live import MessageStored
from gateway.flow.turn.presence import typing
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.files import attachments, files
from gateway.store.files.attachments import PendingAttachment
from gateway.store.transcript import messages, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import tasks

LONGEST_WAIT = timedelta(days=1)
"""For a channel that is shut or cannot be reached; then the file is given up."""
MOST_SECONDS = 60.0
FETCH_SECONDS = 300.0
"""For one file: who is slower than that may not keep others waiting."""

log = structlog.get_logger(__name__)


class Ingest:
    """Each step is committed by itself: a run that is killed goes on where it stopped."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._database = services.database
        self._extraction = TextExtraction(
            services.database,
            services.environments,
            services.cpu,
            services.data / "ingest",
            services.hear,
            services.failpoints,
        )

    async def run(self, run: Claim) -> None:
        """Bring in all files of the message; raises `RunLost`."""
        message, left = await self._left(run)
        waits: dict[UUID, float] = {}
        while left := [each for each in left if each.id not in waits]:
            try:
                async with self._typing(message):
                    await self._bring_in(run, left[0])
                self._changed(message.session_id, message.id)
            except FetchDelayed as exc:
                waits[left[0].id] = self._wait(left[0])
                log.info("ingest.delayed", attachment=str(left[0].id), error=str(exc))
            message, left = await self._left(run)
        await self._database.run(lambda tx: _end(tx, run, message, min(waits.values(), default=0.0)))

    async def give_up(self, run: Claim) -> None:
        """What is left failed again and again: its message says so, and need not wait for it."""
        message, _ = await self._left(run)

        async def end(tx: Connection) -> None:
            await sessions.lock_for(tx, message.session_id, run)
            for each in await attachments.incomplete(tx, message.id):
                if each.file_id is not None:
                    await files.derived(tx, each.file_id, problem="it could not be read")
                await attachments.mark_failed(tx, each.id, "it could not be stored")
            await tasks.finish(tx, run, Status.FAILED, error="out of attempts")
            await tasks.hasten(tx, message.session_id)

        await self._database.run(end)
        self._changed(message.session_id, message.id)

    def _changed(self, session: SessionId, message: MessageId) -> None:
        """Its files are further than they were."""
        self._services.live.publish(session, MessageStored(message))
        self._services.journal.rewrite(session)

    async def _left(self, run: Claim) -> tuple[MessageRow, list[PendingAttachment]]:
        """The message as it is now, and what of it is still to be brought in."""
        async with self._database.connection() as conn:
            match await tasks.payload(conn, run.id):
                case {"message": int(id)} if row := await messages.get(conn, MessageId(id)):
                    return row, await attachments.incomplete(conn, row.id)
        raise ValueError("the task names no message")

    @asynccontextmanager
    async def _typing(self, message: MessageRow) -> AsyncIterator[None]:
        """While somebody waits for the answer, show that the message was heard."""
        if not message.open or message.seq is not None or message.address_id is None:
            yield
            return
        async with self._database.connection() as conn:
            at = await addresses.get(conn, message.address_id)
        async with typing(self._services.outbound.channel(at), at):
            yield

    async def _bring_in(self, run: Claim, each: PendingAttachment) -> None:
        """Raises `FetchDelayed` for a file that may be there later."""
        if each.file_id is not None:
            await self._extraction.read(run, each.principal_id, each.file_id)
            return
        try:
            await self._fetch(run, each)
        except (FetchFailed, UploadRefused) as exc:
            await self._fail(run, each, str(exc))
        except FetchDelayed as exc:
            if self._services.clock.now() - each.created_at < LONGEST_WAIT:
                raise
            await self._fail(run, each, f"it could not be fetched for a day: {exc}")

    async def _fetch(self, run: Claim, each: PendingAttachment) -> None:
        uploads = self._services.uploads
        channel = self._services.outbound.channel(Address(each.channel, "", ""))
        if channel is None:
            raise FetchDelayed(f"{each.channel} is shut")
        uploads.check(each.size)
        pieces = channel.fetch(each.announced)
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                file = await uploads.keep(each.principal_id, each.name, each.mime, pieces, origin=each.channel)
        except TimeoutError:
            raise FetchFailed(f"it could not be fetched within {FETCH_SECONDS / 60:g} minutes") from None
        self._services.failpoints.reach(Step.INGEST_KEPT)
        await tasks.step(self._database, run, lambda tx: attachments.mark_stored(tx, each.id, file.id))

    async def _fail(self, run: Claim, each: PendingAttachment, error: str) -> None:
        reason = " ".join(error.split())[:500]
        await tasks.step(self._database, run, lambda tx: attachments.mark_failed(tx, each.id, reason))
        log.info("ingest.refused", attachment=str(each.id))

    def _wait(self, each: PendingAttachment) -> float:
        """Seconds: the longer it has been waited for, the longer the next wait."""
        age = (self._services.clock.now() - each.created_at).total_seconds()
        return min(MOST_SECONDS, max(1.0, age / 2))


async def _end(tx: Connection, run: Claim, message: MessageRow, wait: float) -> None:
    """The next part of an album may have come meanwhile; whoever stores one holds the session, too."""
    await sessions.lock_for(tx, message.session_id, run)
    if await attachments.incomplete(tx, message.id):
        await tasks.requeue(tx, run, delay=wait, failed=False)
    else:
        await tasks.finish(tx, run, Status.COMPLETED)
        await tasks.hasten(tx, message.session_id)


runner = Ingest
