"""`speak`: reads an answer aloud, whose text has been sent; the recording becomes another part of the same message."""

import re
from dataclasses import dataclass
from time import monotonic

import structlog

from gateway.background.jobs import Delivery, Job, JobParts, Models
from gateway.domain.conversation.inbound import OWN_CHANNELS
from gateway.domain.conversation.model import Reply
from gateway.domain.principals import Role
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.outbound.parts import record_file
from gateway.flow.turn.budgets import OutOfBudget, SharedBudgets
from gateway.llm.errors import ErrorKind, ModelError
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.files import attachments, files
from gateway.store.transcript import messages
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import tasks
from gateway.workspace.files.disk import Written
from gateway.workspace.files.paths import WorkspaceError

RETRY_SECONDS = 10.0
DESCRIPTION = "an answer, read aloud"
_KINDS = rb"(?P<ogg>OggS)|(?P<wav>RIFF)|(?P<flac>fLaC)|(?P<m4a>....ftyp)|(?P<aac>\xff[\xf1\xf9])|(?P<mp3>ID3|\xff)"
"""Recordings by their first bytes."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Speaking(Job):
    """Best effort: without a recording the text stands alone. Part and task are stored together, so it comes once."""

    delivery: Delivery
    workspaces: Workspaces
    models: Models
    budgets: SharedBudgets

    async def run(self, run: Claim) -> None:
        """Make the recording and queue it; raises `RunLost`."""
        from gateway.domain.text.markdown import spoken

        answer, speech = await self.engine.database.read(lambda conn: messages.of_task(conn, run)), self.models.speech()
        text = spoken(self.delivery.outbound.clean(answer.text)) if answer else ""
        if answer is None or speech is None or not text:
            await self.engine.database.run(lambda tx: tasks.finish(tx, run, Status.COMPLETED))
            return
        began = monotonic()
        try:
            if self.budgets.limited:
                await self.budgets.reserve(run, speech.highest(text), Role.OWNER, asked_before=False)
            sound, usage = await speech.speak(text)
            file = await self._kept(run, answer, sound)
        except (ModelError, OutOfBudget, WorkspaceError) as error:
            await self._failed(run, error)
            return
        reply = Reply("", (), usage, speech.model, int((monotonic() - began) * 1000))
        await self.complete(run, [reply], lambda tx: self._store(tx, run, answer, file))
        self.delivery.proactive.committed(answer)

    async def _kept(self, run: Claim, answer: MessageRow, sound: bytes) -> Written:
        """The file of the recording; raises `ModelError` if it is none, and `WorkspaceError`."""
        if (kind := re.match(_KINDS, sound)) is None:
            raise ModelError(ErrorKind.BAD_REQUEST, "the answer is not a recording of a known format")
        workspace = self.workspaces.of(run.principal_id)
        return await workspace.write(f"answers/voice-{answer.id}.{kind.lastgroup}", sound, answer.label, unlocked=True)

    async def _store(self, tx: Connection, run: Claim, answer: MessageRow, file: Written) -> None:
        assert answer.address_id is not None, "an answer of a chat goes somewhere"
        at = await addresses.get(tx, answer.address_id)
        kept = await record_file(tx, run.principal_id, file, answer.label)
        await files.derived(tx, kept.id, description=DESCRIPTION)
        await self.delivery.outbound.put(tx, at, answer.id, "", files=[kept.id])
        if at.channel in OWN_CHANNELS:
            await attachments.add_kept(tx, run.principal_id, answer.id, at.channel, [kept.announced])

    async def _failed(self, run: Claim, error: ModelError | OutOfBudget | WorkspaceError) -> None:
        log.warning("answer.not_spoken", error=str(error))

        async def end(tx: Connection) -> None:
            if isinstance(error, ModelError) and error.repeatable and run.attempts < run.max_attempts:
                await tasks.requeue(tx, run, delay=error.retry_after or RETRY_SECONDS, error=str(error))
            else:
                await tasks.finish(tx, run, Status.FAILED, error=str(error))

        await self.engine.database.run(end)


def runner(parts: JobParts) -> Speaking:
    """The runner of `speak` tasks."""
    return Speaking(parts.engine, parts.delivery, parts.files.workspaces, parts.models, parts.models.cheap.budgets)
