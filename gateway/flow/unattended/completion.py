"""The end of an unattended run: the message to its person, and the consequences for its schedule, trigger or task."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from gateway.agent.loop import NO_ANSWER
from gateway.agent.work.schedules import schedule_failed, trigger_failed
from gateway.agent.work.task_trees import SHORT
from gateway.domain.channels.channel import Button
from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.ids import MessageId
from gateway.domain.principals import Label, Role, label_of
from gateway.domain.text.marks import heading
from gateway.domain.text.texts import one_line
from gateway.domain.work.tasks import QUIET, Assignment, Claim, Status, TurnResult, is_quiet
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.outbound.parts import Abridged, abridge
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.signals import Signals
from gateway.flow.turn.opening import OpenedTurn
from gateway.flow.turn.runner import Destination, RunFinisher, RunOutcome
from gateway.flow.unattended.schedule_results import alert_failure, alert_recovery
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import journals, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import schedule_runs, triggers
from gateway.store.work.schedules import ScheduleRow

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UnattendedResult:
    """The stored `answer` of a run, or in one line for its person the `reason` why it failed.

    `own` is that person's label, `tells` whether the agent has something to say.
    """

    run: Claim
    assignment: Assignment
    reason: str | None
    own: Label
    tells: bool
    sent: Abridged
    answer: MessageRow
    at: AddressRow | None
    """The person's chat, which is locked; None if there is none."""
    proactive: ProactiveMessages

    async def deliver(self, tx: Connection) -> MessageRow | None:
        """Send the result to the chat."""
        run, whose, asked, label = self.run, self.run.principal_id, self.assignment, self.answer.label
        if self.at is None:
            log.warning("run.undeliverable")
            return None
        said, files = AssistantText(self.answer.text), await self.sent.keep(tx, whose, label)
        say = partial(self.proactive.say, tx, self.at, whose, said, label=label, origin=asked.origin, task=run.id)
        return await say(sent=self.sent.text, files=files, heading=heading(asked.heading, label, self.own))


class Origin(ABC):
    """The source of unattended runs. Each coroutine is part of the caller's transaction."""

    async def unwanted(self, _tx: Connection, _run: Claim) -> str | None:
        """Why the run is no longer wanted; None if it is."""
        return None

    async def dropped(self, _tx: Connection, _run: Claim, _why: str) -> None:
        """Record that the run ends without being opened; its task says so in any case."""
        return

    @abstractmethod
    async def ended(self, tx: Connection, ended: UnattendedResult) -> RunOutcome:
        """Record the end, and `deliver` it if there is something to say."""

    def after(self, _sent: MessageRow | None) -> None:
        """Act on the committed end, and on the message that was sent; never blocks."""
        return


class TriggerOrigin(Origin):
    """Requests of other programs: a failure is reported once an hour for each source."""

    async def ended(self, tx: Connection, ended: UnattendedResult) -> RunOutcome:
        """The result, or the notice of a failure."""
        if ended.reason is not None:
            return RunOutcome(Status.FAILED, ended.reason, await self._fail(tx, ended, ended.reason))
        return RunOutcome(Status.COMPLETED, sent=await ended.deliver(tx) if ended.tells else None)

    async def _fail(self, tx: Connection, ended: UnattendedResult, reason: str) -> MessageRow | None:
        run, source = ended.run, ended.assignment.name
        if ended.at is None or await triggers.failed_this_hour(tx, run.principal_id, source, run.id):
            return None
        notice = trigger_failed(source, reason)
        return await ended.proactive.say(tx, ended.at, run.principal_id, notice, label=Label.OWNER)


NO_CHAT = "no chat to deliver to"


@dataclass(frozen=True, slots=True)
class ScheduleOrigin(Origin):
    """Schedules; `follow` watches a message until it is delivered."""

    follow: Callable[[MessageId], None]
    signals: Signals

    async def unwanted(self, tx: Connection, run: Claim) -> str | None:
        """Not wanted once its schedule was removed."""
        return None if await schedule_runs.exists(tx, run.id) else "its schedule was removed"

    async def dropped(self, tx: Connection, run: Claim, why: str) -> None:
        """Record it in the history of the slot."""
        await schedule_runs.mark_failed(tx, run.id, why)

    async def ended(self, tx: Connection, ended: UnattendedResult) -> RunOutcome:
        """Record the slot, under the lock of its schedule."""
        planned = ended.assignment.schedule
        schedule = await schedule_runs.hold(tx, planned) if planned is not None else None
        if schedule is None:  # removed meanwhile
            return RunOutcome(Status.CANCELLED)
        if ended.reason is not None:
            return RunOutcome(Status.FAILED, ended.reason, await self._fail(tx, ended, ended.reason, schedule))
        await schedule_runs.mark_executed(tx, ended.run.id)
        if ended.tells:
            return RunOutcome(Status.COMPLETED, sent=await _deliver_result(tx, ended))
        # With a result on its way, its delivery reports that the schedule works again.
        return RunOutcome(Status.COMPLETED, sent=await alert_recovery(tx, ended.proactive, schedule, ended.at))

    async def _fail(
        self, tx: Connection, ended: UnattendedResult, reason: str, schedule: ScheduleRow
    ) -> MessageRow | None:
        await schedule_runs.mark_failed(tx, ended.run.id, reason)
        slot = ended.assignment.slot
        assert slot is not None, "a schedule's run has one"
        notice = schedule_failed(schedule.definition, slot, reason)
        return await alert_failure(tx, ended.proactive, schedule, ended.at, notice)

    def after(self, sent: MessageRow | None) -> None:
        """Follow the message, and look for the next slot."""
        if sent is not None:
            self.follow(sent.id)
        self.signals.schedules.set()


async def _deliver_result(tx: Connection, ended: UnattendedResult) -> MessageRow | None:
    said = await ended.deliver(tx)
    await schedule_runs.mark_produced(tx, ended.run.id, said.id if said else None)
    if said is None:
        await schedule_runs.mark_failed(tx, ended.run.id, NO_CHAT)
    return said


class TaskOrigin(Origin):
    """Task trees: a failed node is a result for its parent, a failed tree a notice."""

    async def ended(self, tx: Connection, ended: UnattendedResult) -> RunOutcome:
        """The result, for the parent or for the chat that asked."""
        if ended.reason is not None:
            said = await self._failed(tx, ended, ended.reason, ended.at) if ended.at is not None else None
            return RunOutcome(Status.FAILED, ended.reason, said)
        said = await ended.deliver(tx) if ended.assignment.deliver else None
        return RunOutcome(Status.COMPLETED, sent=said, result=ended.answer.text)

    async def _failed(self, tx: Connection, ended: UnattendedResult, reason: str, at: AddressRow) -> MessageRow:
        """Send a notice without texts of models or other people."""
        id = str(ended.run.id)[:SHORT]
        notice = Notice(f"The task {id} failed: {reason}")
        again = Button("Try again", f"/tasks retry {id}")
        return await ended.proactive.say(tx, at, ended.run.principal_id, notice, label=Label.OWNER, buttons=(again,))


MAX_REASON = 500
EMPTY_ANSWER = "the model gave an empty answer"


@dataclass(frozen=True, slots=True)
class UnattendedFinisher:
    """Ends unattended runs: in their own session, in their person's chat, for their origin."""

    workspaces: Workspaces
    proactive: ProactiveMessages
    finisher: RunFinisher

    async def finish(
        self, assignment: Assignment, opened: OpenedTurn, result: TurnResult, origin: Origin
    ) -> MessageRow | None:
        """Store the end. Returns the message to the person; raises `RunLost`, with nothing stored."""
        run, role = opened.run, opened.principal.role
        reason, own = _reason(result, role), label_of(role, private=True, as_owner=True)
        tells = assignment.deliver and reason is None and not is_quiet(result.entry.text, QUIET)
        destination = partial(self._destination, run=run, asked=assignment)
        sent = await self._abridged(run, result, destination) if tells else Abridged(result.entry.text)

        async def store(tx: Connection, answer: MessageRow, at: AddressRow | None) -> RunOutcome:
            if await sessions.end_unnamed(tx, answer.session_id):
                await journals.close(tx, answer.session_id, assignment.name)
            ended = UnattendedResult(run, assignment, reason, own, tells, sent, answer, at, self.proactive)
            return await origin.ended(tx, ended)

        return (await self.finisher.finish(opened, result, store, destination)).sent

    async def _abridged(self, run: Claim, result: TurnResult, destination: Destination) -> Abridged:
        """The answer for the chat that will probably get it."""
        engine, outbound = self.proactive.engine, self.proactive.outbound
        at = await engine.database.run(destination)
        channel, workspace = outbound.channel(at) if at else None, self.workspaces.of(run.principal_id)
        return await abridge(result.entry.text, result.label, channel, workspace, engine.clock.now())

    async def _destination(self, tx: Connection, run: Claim, asked: Assignment) -> AddressRow | None:
        if not asked.deliver:
            return None
        return await self.proactive.destination(tx, run.principal_id, address=asked.address, channel=asked.channel)


def _reason(result: TurnResult, role: Role) -> str | None:
    """The reason of a failure; no answer is one. Texts of providers are for the owner alone."""
    if result.status is Status.FAILED:
        known = result.entry.text if role is Role.OWNER or result.problem is None else result.error or ""
        return one_line(known, MAX_REASON)
    return EMPTY_ANSWER if result.entry.text in {"", NO_ANSWER} else None
