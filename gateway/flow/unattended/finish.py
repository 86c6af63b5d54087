"""The end of a run that nobody waits for: what its person is told; what follows from it is its origin's."""

from dataclasses import dataclass

import structlog

from gateway.agent.loop import NO_ANSWER
from gateway.domain.clock import Clock
from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.principals import Role, label_of
from gateway.domain.text.marks import heading
from gateway.domain.text.texts import one_line
from gateway.domain.work.assignment import Assignment
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.outbound.long_answers import Abridged, abridged
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.outbound.sender import Outbound
from gateway.flow.turn.environment import AgentEnvironments
from gateway.flow.turn.finish import Finished, RunFinisher
from gateway.flow.turn.open import OpenedTurn
from gateway.flow.turn.runner import TurnResult
from gateway.flow.unattended.origins import Origin, UnattendedResult
from gateway.store import sessions
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import journals
from gateway.store.transcript.messages import MessageRow

LONGEST_REASON = 500
EMPTY = "the model gave an empty answer"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UnattendedFinisher:
    """Ends runs that nobody waits for: in their own session, in their person's chat, for their origin."""

    database: Database
    environments: AgentEnvironments
    outbound: Outbound
    proactive: ProactiveMessages
    finisher: RunFinisher
    clock: Clock

    async def finish(
        self, run: Claim, assignment: Assignment, opened: OpenedTurn, result: TurnResult, origin: Origin
    ) -> MessageRow | None:
        """What its person was told; raises `RunLost`, then nothing is stored."""
        role = opened.principal.role
        ended = UnattendedResult(run, assignment, result, _reason(result, role), label_of(role, private=True))
        sent = await self._abridged(ended) if ended.tells else Abridged(result.entry.text)

        async def store(tx: Connection, answer: MessageRow, at: AddressRow | None) -> Finished:
            return await self._store(tx, ended, sent, answer, at, origin)

        finished = await self.finisher.finish(
            run, opened.session, result, store, destination=lambda tx: self._destination(tx, ended)
        )
        return finished.sent

    async def _abridged(self, ended: UnattendedResult) -> Abridged:
        """For the chat that is going to get it, as far as that can be known before."""
        at = await self.database.run(lambda tx: self._destination(tx, ended))
        channel = self.outbound.channel(at) if at else None
        workspace = self.environments.of(ended.run.principal_id).workspace
        return await abridged(ended.result.entry.text, ended.result.label, channel, workspace, self.clock.now())

    async def _destination(self, tx: Connection, ended: UnattendedResult) -> AddressRow | None:
        asked = ended.assignment
        if not asked.deliver:
            return None
        principal = ended.run.principal_id
        return await self.proactive.destination(tx, principal, address=asked.address, channel=asked.channel)

    async def _store(
        self,
        tx: Connection,
        ended: UnattendedResult,
        sent: Abridged,
        answer: MessageRow,
        at: AddressRow | None,
        origin: Origin,
    ) -> Finished:
        """The end of its session, and what that means to its origin."""
        if await sessions.end_unnamed(tx, answer.session_id):
            await journals.close(tx, answer.session_id, ended.assignment.name)
        return await origin.ended(tx, ended, at, lambda: self._deliver(tx, ended, sent, answer, at))

    async def _deliver(
        self, tx: Connection, ended: UnattendedResult, sent: Abridged, answer: MessageRow, at: AddressRow | None
    ) -> MessageRow | None:
        run = ended.run
        if at is None:
            log.warning("run.undeliverable")
            return None
        return await self.proactive.say(
            tx,
            at,
            run.principal_id,
            AssistantText(answer.text),
            label=answer.label,
            origin=ended.assignment.origin,
            task=run.id,
            sent=sent.text,
            files=await sent.keep(tx, run.principal_id, answer.label),
            heading=heading(ended.assignment.heading, answer.label, ended.own),
        )


def _reason(result: TurnResult, role: Role) -> str | None:
    """No answer is a failure, never silence; what providers say is for the owner alone."""
    if result.status is Status.FAILED:
        known = result.entry.text if role is Role.OWNER or result.problem is None else result.error or ""
        return one_line(known, LONGEST_REASON)
    return EMPTY if result.entry.text in {"", NO_ANSWER} else None
