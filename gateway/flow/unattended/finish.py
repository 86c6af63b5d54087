"""Finish a run that nobody waits for: in its own session, in its person's chat and in the books."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from gateway.agent.loop import NO_ANSWER
from gateway.agent.scheduling.alerts import schedule_failed, trigger_failed
from gateway.config.failpoints import Failpoints, Step
from gateway.domain.assignment import QUIET, Assignment, is_quiet
from gateway.domain.clock import Clock
from gateway.domain.principals import Label, Role
from gateway.domain.tasks import Claim, Status
from gateway.domain.texts import one_line
from gateway.domain.transcript import AssistantText
from gateway.flow.live import Live, MessageStored
from gateway.flow.outbound.long_answers import Abridged, abridged
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.outbound.sender import Outbound
from gateway.flow.turn.environment import AgentEnvironments
from gateway.flow.turn.open import OpenedTurn
from gateway.flow.turn.runner import TurnResult
from gateway.flow.unattended.alerts import alert_failure, alert_recovery
from gateway.store import sessions, tasks
from gateway.store.addresses import AddressRow
from gateway.store.pool import Connection, Database
from gateway.store.scheduling import schedule_runs
from gateway.store.scheduling.schedules import ScheduleRow
from gateway.store.transcript import journals
from gateway.store.transcript.messages import MessageRow

LONGEST_REASON = 500
NO_CHAT = "no chat to deliver to"
EMPTY = "the model gave an empty answer"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """What a run has to say, and what of it is `sent`; or, in one line for its person, the `reason` why it failed."""

    run: Claim
    assignment: Assignment
    opened: OpenedTurn
    said: TurnResult
    reason: str | None
    sent: Abridged

    @property
    def tells(self) -> bool:
        """Whether the agent has something to tell."""
        return self.assignment.deliver and self.reason is None and not is_quiet(self.said.entry.text, QUIET)


class RunFinisher:
    """Stores what a run said and tells its person, in one transaction.

    `over` is called after the run of a slot, with what was told: the next one may be due.
    """

    def __init__(
        self,
        database: Database,
        environments: AgentEnvironments,
        outbound: Outbound,
        proactive: ProactiveMessages,
        live: Live,
        clock: Clock,
        failpoints: Failpoints,
        over: Callable[[MessageRow | None], None],
    ) -> None:
        self._database = database
        self._environments = environments
        self._outbound = outbound
        self._proactive = proactive
        self._live = live
        self._clock = clock
        self._failpoints = failpoints
        self._over = over

    async def finish(self, run: Claim, assignment: Assignment, opened: OpenedTurn, said: TurnResult) -> None:
        """Raises `RunLost`; then nothing of it is stored."""
        ending = Ending(run, assignment, opened, said, _reason(said, opened.principal.role), Abridged(said.entry.text))
        if ending.tells:
            ending = replace(ending, sent=await self._abridged(ending))
        answer, told = await self._database.run(lambda tx: self._store(tx, ending))
        self._failpoints.reach(Step.ANSWER_COMMITTED)
        log.info("run.concluded", message_id=answer.id, failed=ending.reason is not None, told=told and told.id)
        self._live.publish(opened.session, MessageStored(answer.id))
        if told is not None:
            self._proactive.told(told)
        if assignment.schedule is not None:
            self._over(told)

    async def _abridged(self, ending: Ending) -> Abridged:
        """For the chat where it is going to be told, as far as that can be known before."""
        at = await self._database.run(lambda tx: self._destination(tx, ending))
        channel, environment = (
            self._outbound.channel(at) if at else None,
            self._environments.of(ending.run.principal_id),
        )
        return await abridged(ending.said.entry.text, channel, environment.workspace, self._clock.now())

    async def _destination(self, tx: Connection, ending: Ending) -> AddressRow | None:
        asked = ending.assignment
        if not asked.deliver:
            return None
        principal = ending.run.principal_id
        return await self._proactive.destination(tx, principal, address=asked.address, channel=asked.channel)

    async def _store(self, tx: Connection, ending: Ending) -> tuple[MessageRow, MessageRow | None]:
        """One transaction: the answer, what is told of it, how far the slot came, the task's end."""
        run, planned = ending.run, ending.assignment.schedule
        at = await self._destination(tx, ending)
        await sessions.lock(tx, ending.opened.session)
        await tasks.hold(tx, run)
        answer = await _answer(tx, ending)
        schedule = await schedule_runs.hold(tx, planned) if planned is not None else None
        if planned is not None and schedule is None:  # removed meanwhile
            await tasks.finish(tx, run, Status.CANCELLED)
            return answer, None
        if ending.reason is None:
            told = await self._succeed(tx, ending, answer, schedule, at)
            status = Status.COMPLETED
        else:
            told = await self._fail(tx, ending, ending.reason, schedule, at)
            status = Status.FAILED
        await tasks.finish(tx, run, status, error=ending.reason, said=told.id if told else None)
        return answer, told

    async def _succeed(
        self, tx: Connection, ending: Ending, answer: MessageRow, schedule: ScheduleRow | None, at: AddressRow | None
    ) -> MessageRow | None:
        """That a schedule works again is told here only if nothing is on its way for it."""
        run = ending.run
        await schedule_runs.executed(tx, run.id)
        if not ending.tells:
            return await alert_recovery(tx, self._proactive, schedule, at) if schedule else None
        if at is None:
            log.warning("run.undeliverable")
            await schedule_runs.produced(tx, run.id, None)
            await schedule_runs.failed(tx, run.id, NO_CHAT)
            return None
        told = await self._proactive.say(
            tx,
            at,
            run.principal_id,
            AssistantText(answer.text),
            label=answer.label,
            origin=ending.assignment.origin,
            task=run.id,
            sent=ending.sent.text,
            files=await ending.sent.keep(tx, run.principal_id, answer.label),
        )
        await schedule_runs.produced(tx, run.id, told.id)
        return told

    async def _fail(
        self, tx: Connection, ending: Ending, reason: str, schedule: ScheduleRow | None, at: AddressRow | None
    ) -> MessageRow | None:
        run, asked = ending.run, ending.assignment
        await schedule_runs.failed(tx, run.id, reason)
        if schedule is not None and asked.slot is not None:
            notice = schedule_failed(schedule.definition, asked.slot, reason)
            return await alert_failure(tx, self._proactive, schedule, at, notice)
        if at is None or await schedule_runs.failed_this_hour(tx, run.principal_id, asked.name, run.id):
            return None
        notice = trigger_failed(asked.name, reason)
        return await self._proactive.say(tx, at, run.principal_id, notice, label=Label.OWNER, origin="gateway")


async def _answer(tx: Connection, ending: Ending) -> MessageRow:
    """In the run's own session, which ends with it, and with the trust of all that was read there."""
    session = ending.opened.session
    answer = await ending.said.store(tx, ending.run, session, label=await sessions.label(tx, session))
    if await sessions.end_unnamed(tx, session):
        await journals.close(tx, session, ending.assignment.name)
    return answer


def _reason(said: TurnResult, role: Role) -> str | None:
    """No answer is a failure, never silence; what providers say is for the owner alone."""
    if said.status is Status.FAILED:
        known = said.entry.text if role is Role.OWNER or said.problem is None else said.error or ""
        return one_line(known, LONGEST_REASON)
    return EMPTY if said.entry.text in {"", NO_ANSWER} else None
