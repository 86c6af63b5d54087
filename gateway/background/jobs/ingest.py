"""`ingest`: fetches, stores and reads the files of a message, so that its turn has them together with its text."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog

from gateway.background.jobs import OUT_OF_ATTEMPTS, FileParts, JobParts
from gateway.config.failpoints import Step
from gateway.domain.channels.channel import FetchDelayed, FetchFailed
from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.transcript import Notice
from gateway.domain.errors import raising, required
from gateway.domain.ids import MessageId, SessionId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.engine import Engine
from gateway.flow.files.uploads import UploadRefused
from gateway.flow.live import MessageStored
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.turn.presence import typing
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.files import attachments, files
from gateway.store.files.attachments import PendingAttachment
from gateway.store.people import principals
from gateway.store.transcript import messages, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import tasks

MAX_AGE = timedelta(days=1)
"""How long to wait for a channel that is closed or can't be reached; after that, the file is given up."""
MAX_WAIT_SECONDS = 60.0
FETCH_SECONDS = 300.0
"""The limit for one file, so that a slow one doesn't keep others waiting."""

NOT_HEARD = "I can't hear recordings yet, as no model transcribes them. {} I say this once."
OWNER_CHOOSES = "Choose one in Setup on the page, by `supaclaw init` or as models.transcription in config.json."
ASK_OWNER = "Write instead, or ask this agent's owner to choose one."

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Ingest:
    """Commits each step separately: a killed run continues where it stopped."""

    engine: Engine
    files: FileParts
    proactive: ProactiveMessages

    async def run(self, run: Claim) -> None:
        """Fetch, store and read all files of the message; raises `RunLost`."""
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
        await self._explain(message)
        await self.engine.database.run(lambda tx: _end(tx, run, message, min(waits.values(), default=0.0)))

    async def give_up(self, run: Claim) -> None:
        """Mark the remaining files as failed, so that the message need not wait for them."""
        message, _ = await self._left(run)

        async def end(tx: Connection) -> None:
            await sessions.lock_for(tx, message.session_id, run)
            for each in await attachments.incomplete(tx, message.id):
                if each.file_id is not None:
                    await files.derived(tx, each.file_id, problem="it could not be read")
                await attachments.mark_failed(tx, each.id, "it could not be stored")
            await tasks.finish(tx, run, Status.FAILED, error=OUT_OF_ATTEMPTS)
            await tasks.hasten(tx, message.session_id)

        await self.engine.database.run(end)
        self._changed(message.session_id, message.id)

    async def _explain(self, message: MessageRow) -> None:
        """Tell a person once, in a chat that shows notices, what to do if no model hears their recordings."""
        person, own = message.principal_id, self.engine.people.is_owner(message.principal_id)
        if message.origin == "api" or self.files.extraction.hear() is not None:
            return

        async def store(tx: Connection) -> MessageRow | None:
            at = await self.proactive.destination(tx, person, address=message.address_id)
            if at is None or not await principals.explain_recordings(tx, person, message.id):
                return None
            told = Notice(NOT_HEARD.format(OWNER_CHOOSES if own else ASK_OWNER))
            return await self.proactive.say(tx, at, person, told, label=Label.OWNER)

        if row := await self.engine.database.run(store):
            self.proactive.committed(row)

    def _changed(self, session: SessionId, message: MessageId) -> None:
        """Show the new state of the message's files."""
        self.engine.live.publish(session, MessageStored(message))
        self.files.journal.rewrite(session)

    async def _left(self, run: Claim) -> tuple[MessageRow, list[PendingAttachment]]:
        """The message as it is now, and its remaining files."""
        async with self.engine.database.connection() as conn:
            if row := await messages.of_task(conn, run):
                return row, await attachments.incomplete(conn, row.id)
        raise ValueError("the task names no message")

    @asynccontextmanager
    async def _typing(self, message: MessageRow) -> AsyncIterator[None]:
        """Show the typing indicator if the sender waits for an answer."""
        if not message.open or message.seq is not None or message.address_id is None:
            yield
            return
        async with self.engine.database.connection() as conn:
            at = await addresses.get(conn, message.address_id)
        async with typing(self.proactive.outbound.channel(at), at):
            yield

    async def _bring_in(self, run: Claim, each: PendingAttachment) -> None:
        """Fetch or read one file; raises `FetchDelayed` if the file may be available later."""
        if each.file_id is not None:
            await self.files.extraction.read(run, each.principal_id, each.file_id)
            return
        try:
            await self._fetch(run, each)
        except (FetchFailed, UploadRefused) as exc:
            await self._fail(run, each, str(exc))
        except FetchDelayed as exc:
            if self.engine.clock.now() - each.created_at < MAX_AGE:
                raise
            await self._fail(run, each, f"it could not be fetched for a day: {exc}")

    async def _fetch(self, run: Claim, each: PendingAttachment) -> None:
        uploads = self.files.uploads
        channel = self.proactive.outbound.channel(Address(each.channel, "", ""))
        pieces = required(channel, FetchDelayed(f"{each.channel} is shut")).fetch(each.announced)
        uploads.check(each.size)
        with raising(FetchFailed(f"it could not be fetched within {FETCH_SECONDS / 60:g} minutes"), TimeoutError):
            async with asyncio.timeout(FETCH_SECONDS):
                file = await uploads.keep(each.principal_id, each.name, each.mime, pieces, origin=each.channel)
        self.engine.failpoints.reach(Step.INGEST_KEPT)

        async def store(tx: Connection) -> None:
            await attachments.mark_stored(tx, each.id, file.id)
            await files.reread(tx, file.id)

        await tasks.step(self.engine.database, run, store)

    async def _fail(self, run: Claim, each: PendingAttachment, error: str) -> None:
        reason = " ".join(error.split())[:500]
        await tasks.step(self.engine.database, run, lambda tx: attachments.mark_failed(tx, each.id, reason))
        log.info("ingest.refused", attachment=str(each.id))

    def _wait(self, each: PendingAttachment) -> float:
        """Seconds until the next attempt; they grow with the age of the attachment."""
        return min(MAX_WAIT_SECONDS, max(1.0, (self.engine.clock.now() - each.created_at).total_seconds() / 2))


async def _end(tx: Connection, run: Claim, message: MessageRow, wait: float) -> None:
    """End the task, or requeue it if a part of an album arrived meanwhile; parts are stored under the same lock."""
    await sessions.lock_for(tx, message.session_id, run)
    if await attachments.incomplete(tx, message.id):
        await tasks.requeue(tx, run, delay=wait, failed=False)
    else:
        await tasks.finish(tx, run, Status.COMPLETED)
        await tasks.hasten(tx, message.session_id)


def runner(parts: JobParts) -> Ingest:
    """The runner of `ingest` tasks."""
    return Ingest(parts.engine, parts.files, parts.delivery.proactive)
