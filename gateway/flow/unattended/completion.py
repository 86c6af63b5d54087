"""The end of an unattended run: the message to its person, and the consequences for its schedule, trigger or task."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

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
from gateway.flow.engine import Engine
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.outbound.parts import Abridged, abridge
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.outbound.sender import Outbound
from gateway.flow.signals import Signals
from gateway.flow.turn.opening import OpenedTurn
from gateway.flow.turn.runner import RunFinisher, RunOutcome
from gateway.flow.unattended.schedule_results import alert_failure, alert_recovery
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import journals, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import schedule_runs, triggers
from gateway.store.work.schedules import ScheduleRow


@dataclass(frozen=True, slots=True)
class UnattendedResult:
    """The result of a run, or in one line for its person the `reason` why it failed. `own` is that person's label."""

    run: Claim
    assignment: Assignment
    result: TurnResult
    reason: str | None
    own: Label

    @property
    def tells(self) -> bool:
        """Whether the agent has something to say."""
        return self.assignment.deliver and self.reason is None and not is_quiet(self.result.entry.text, QUIET)


Deliver: TypeAlias = Callable[[], Awaitable[MessageRow | None]]
"""Sends the result to its chat; None if there is no chat."""


class Origin(ABC):
    """The source of unattended runs. Each coroutine is part of the caller's transaction."""

    async def unwanted(self, _tx: Connection, _run: Claim) -> str | None:
        """Why the run is no longer wanted; None if it is."""
        return None

    async def dropped(self, _tx: Connection, _run: Claim, _why: str) -> None:
        """Record that the run ends without being opened; its task says so in any case."""
        return

    @abstractmethod
    async def ended(
        self, tx: Connection, ended: UnattendedResult, at: AddressRow | None, deliver: Deliver
    ) -> RunOutcome:
        """Record the end, and call `deliver` if there is something to say. The caller holds the chat `at`."""

    def after(self, _sent: MessageRow | None) -> None:
        """Act on the committed end, and on the message that was sent; never blocks."""
        return


@dataclass(frozen=True, slots=True)
class TriggerOrigin(Origin):
    """Requests of other programs: a failure is reported once an hour for each source."""

    proactive: ProactiveMessages

    async def ended(
        self, tx: Connection, ended: UnattendedResult, at: AddressRow | None, deliver: Deliver
    ) -> RunOutcome:
        """The result, or the notice of a failure."""
        if ended.reason is not None:
            return RunOutcome(Status.FAILED, ended.reason, await self._fail(tx, ended, ended.reason, at))
        return RunOutcome(Status.COMPLETED, sent=await deliver() if ended.tells else None)

    async def _fail(
        self, tx: Connection, ended: UnattendedResult, reason: str, at: AddressRow | None
    ) -> MessageRow | None:
        run, source = ended.run, ended.assignment.name
        if at is None or await triggers.failed_this_hour(tx, run.principal_id, source, run.id):
            return None
        notice = trigger_failed(source, reason)
        return await self.proactive.say(tx, at, run.principal_id, notice, label=Label.OWNER)


NO_CHAT = "no chat to deliver to"


@dataclass(frozen=True, slots=True)
class ScheduleOrigin(Origin):
    """Schedules; `follow` watches a message until it is delivered."""

    proactive: ProactiveMessages
    follow: Callable[[MessageId], None]
    signals: Signals

    async def unwanted(self, tx: Connection, run: Claim) -> str | None:
        """Not wanted once its schedule was removed."""
        return None if await schedule_runs.exists(tx, run.id) else "its schedule was removed"

    async def dropped(self, tx: Connection, run: Claim, why: str) -> None:
        """Record it in the history of the slot."""
        await schedule_runs.mark_failed(tx, run.id, why)

    async def ended(
        self, tx: Connection, ended: UnattendedResult, at: AddressRow | None, deliver: Deliver
    ) -> RunOutcome:
        """Record the slot, under the lock of its schedule."""
        planned = ended.assignment.schedule
        schedule = await schedule_runs.hold(tx, planned) if planned is not None else None
        if schedule is None:  # removed meanwhile
            return RunOutcome(Status.CANCELLED)
        if ended.reason is not None:
            return RunOutcome(Status.FAILED, ended.reason, await self._fail(tx, ended, ended.reason, schedule, at))
        await schedule_runs.mark_executed(tx, ended.run.id)
        if ended.tells:
            return RunOutcome(Status.COMPLETED, sent=await _deliver_result(tx, ended, deliver))
        # With a result on its way, its delivery reports that the schedule works again.
        return RunOutcome(Status.COMPLETED, sent=await alert_recovery(tx, self.proactive, schedule, at))

    async def _fail(
        self, tx: Connection, ended: UnattendedResult, reason: str, schedule: ScheduleRow, at: AddressRow | None
    ) -> MessageRow | None:
        await schedule_runs.mark_failed(tx, ended.run.id, reason)
        slot = ended.assignment.slot
        assert slot is not None, "a schedule's run has one"
        notice = schedule_failed(schedule.definition, slot, reason)
        return await alert_failure(tx, self.proactive, schedule, at, notice)

    def after(self, sent: MessageRow | None) -> None:
        """Follow the message, and look for the next slot."""
        if sent is not None:
            self.follow(sent.id)
        self.signals.schedules.set()


async def _deliver_result(tx: Connection, ended: UnattendedResult, deliver: Deliver) -> MessageRow | None:
    said = await deliver()
    await schedule_runs.mark_produced(tx, ended.run.id, said.id if said else None)
    if said is None:
        await schedule_runs.mark_failed(tx, ended.run.id, NO_CHAT)
    return said


@dataclass(frozen=True, slots=True)
class TaskOrigin(Origin):
    """Task trees: a failed node is a result for its parent, a failed tree a notice."""

    proactive: ProactiveMessages

    async def ended(
        self, tx: Connection, ended: UnattendedResult, at: AddressRow | None, deliver: Deliver
    ) -> RunOutcome:
        """The result, for the parent or for the chat that asked."""
        if ended.reason is not None:
            said = await self._failed(tx, ended, ended.reason, at) if at is not None else None
            return RunOutcome(Status.FAILED, ended.reason, said)
        said = await deliver() if ended.assignment.deliver else None
        return RunOutcome(Status.COMPLETED, sent=said, result=ended.result.entry.text)

    async def _failed(self, tx: Connection, ended: UnattendedResult, reason: str, at: AddressRow) -> MessageRow:
        """Send a notice without texts of models or other people."""
        id = str(ended.run.id)[:SHORT]
        notice = Notice(f"The task {id} failed: {reason}")
        again = Button("Try again", f"/tasks retry {id}")
        return await self.proactive.say(tx, at, ended.run.principal_id, notice, label=Label.OWNER, buttons=(again,))


MAX_REASON = 500
EMPTY_ANSWER = "the model gave an empty answer"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UnattendedFinisher:
    """Ends unattended runs: in their own session, in their person's chat, for their origin."""

    engine: Engine
    workspaces: Workspaces
    outbound: Outbound
    proactive: ProactiveMessages
    finisher: RunFinisher

    async def finish(
        self, run: Claim, assignment: Assignment, opened: OpenedTurn, result: TurnResult, origin: Origin
    ) -> MessageRow | None:
        """Store the end. Returns the message to the person; raises `RunLost`, with nothing stored."""
        role = opened.principal.role
        ended = UnattendedResult(
            run, assignment, result, _reason(result, role), label_of(role, private=True, as_owner=True)
        )
        sent = await self._abridged(ended) if ended.tells else Abridged(result.entry.text)

        async def store(tx: Connection, answer: MessageRow, at: AddressRow | None) -> RunOutcome:
            if await sessions.end_unnamed(tx, answer.session_id):
                await journals.close(tx, answer.session_id, assignment.name)
            return await origin.ended(tx, ended, at, lambda: self._deliver(tx, ended, sent, answer, at))

        finished = await self.finisher.finish(
            run, opened.session, result, store, destination=lambda tx: self._destination(tx, ended)
        )
        return finished.sent

    async def _abridged(self, ended: UnattendedResult) -> Abridged:
        """The answer for the chat that will probably get it."""
        at = await self.engine.database.run(lambda tx: self._destination(tx, ended))
        channel = self.outbound.channel(at) if at else None
        workspace = self.workspaces.of(ended.run.principal_id)
        return await abridge(ended.result.entry.text, ended.result.label, channel, workspace, self.engine.clock.now())

    async def _destination(self, tx: Connection, ended: UnattendedResult) -> AddressRow | None:
        asked = ended.assignment
        if not asked.deliver:
            return None
        principal = ended.run.principal_id
        return await self.proactive.destination(tx, principal, address=asked.address, channel=asked.channel)

    async def _deliver(
        self, tx: Connection, ended: UnattendedResult, sent: Abridged, answer: MessageRow, at: AddressRow | None
    ) -> MessageRow | None:
        run, whose = ended.run, ended.run.principal_id
        if at is None:
            log.warning("run.undeliverable")
            return None
        asked, said = ended.assignment, AssistantText(answer.text)
        files = await sent.keep(tx, whose, answer.label)
        say = partial(self.proactive.say, tx, at, whose, said, label=answer.label, origin=asked.origin, task=run.id)
        return await say(sent=sent.text, files=files, heading=heading(asked.heading, answer.label, ended.own))


def _reason(result: TurnResult, role: Role) -> str | None:
    """The reason of a failure; no answer is one. Texts of providers are for the owner alone."""
    if result.status is Status.FAILED:
        known = result.entry.text if role is Role.OWNER or result.problem is None else result.error or ""
        return one_line(known, MAX_REASON)
    return EMPTY_ANSWER if result.entry.text in {"", NO_ANSWER} else None
