"""Results of schedules: followed until they are delivered, and alerts when a schedule starts to fail or works again."""

import asyncio
from functools import partial

import structlog

from gateway.agent.work.schedules import schedule_undelivered, schedule_works
from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import MessageId
from gateway.domain.principals import Label
from gateway.domain.text.marks import heading
from gateway.domain.text.texts import one_line
from gateway.domain.work.schedules import Recurring
from gateway.flow.engine import Engine
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.store.connection.pool import Connection
from gateway.store.delivery import outbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import messages
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import schedule_runs
from gateway.store.work.schedule_runs import DeliveryOutcome
from gateway.store.work.schedules import ScheduleRow

log = structlog.get_logger(__name__)


async def alert_failure(
    tx: Connection, proactive: ProactiveMessages, schedule: ScheduleRow, at: AddressRow | None, notice: Notice
) -> MessageRow | None:
    """Send the notice: for a recurring schedule only the first time in a row, for any other each time.

    The caller holds the schedule. Without a chat it is only logged.
    """
    if schedule.failing_since is not None and isinstance(schedule.definition.when, Recurring):
        return None
    if at is None:
        log.warning("schedule.alert_not_sent", schedule=schedule.id)
        return None
    await schedule_runs.set_failing(tx, schedule.id, failing=True)
    return await proactive.say(tx, at, at.principal_id, notice, label=schedule.label)


async def alert_recovery(
    tx: Connection, proactive: ProactiveMessages, schedule: ScheduleRow, at: AddressRow | None
) -> MessageRow | None:
    """Report that it works again, if its failure was reported; the caller holds the schedule."""
    if schedule.failing_since is None:
        return None
    await schedule_runs.set_failing(tx, schedule.id, failing=False)
    if at is None:
        return None
    return await proactive.say(tx, at, at.principal_id, schedule_works(schedule.definition), label=schedule.label)


RETRY_SECONDS = 5.0
POLL_SECONDS = 30.0
MAX_ERROR = 500
IN_DOUBT = "may not have arrived"


class DeliveryFollowUp:
    """Sends a refused result once more, to another chat; a message that may have arrived is never sent again.

    Reads all runs at the start, then after each attempt to send one of their messages, and at intervals, because
    another worker may have run one.
    """

    def __init__(self, engine: Engine, proactive: ProactiveMessages) -> None:
        self._database, self._people = engine.database, engine.people
        self._proactive = proactive
        self._followed: set[MessageId] = set()
        self._due = engine.signals.deliveries
        engine.signals.attempted.subscribe(self._note_attempt)

    def follow(self, message: MessageId) -> None:
        """Watch a committed message of a run; never blocks."""
        self._followed.add(message)
        self._due.set()

    def _note_attempt(self, message: MessageId) -> None:
        if message in self._followed:
            self._due.set()

    async def run(self) -> None:
        """Settle deliveries until cancelled."""
        while True:
            self._due.clear()
            try:
                await self.settle()
            except TryAgainLater as exc:
                log.warning("follow_up.waits", error=str(exc))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await self._due.wait(POLL_SECONDS)

    async def settle(self) -> None:
        """Record every finished delivery, and act on those that failed."""
        known = set(self._followed)
        on_their_way = await self._database.read(schedule_runs.on_their_way)
        self._followed = self._followed - known | on_their_way
        if not on_their_way:
            return
        await self._database.run(lambda tx: schedule_runs.refuse(tx, self._proactive.channels))
        await self._database.run(schedule_runs.deliver)
        outcomes = await self._database.read(schedule_runs.settled_deliveries)
        for outcome in outcomes:
            await self._settled(outcome)

    async def _settled(self, outcome: DeliveryOutcome) -> None:
        try:
            told = await self._database.run(lambda tx: self._settle(tx, outcome))
        except TryAgainLater:
            raise
        except Exception:  # the others must not wait for it
            log.exception("run.unsettled", task_id=str(outcome.task_id))
        else:
            if told is not None:
                self.follow(told.id)
                self._proactive.committed(told)

    async def _settle(self, tx: Connection, outcome: DeliveryOutcome) -> MessageRow | None:
        """Settle one delivery. Returns the message that was sent about it."""
        if outcome.refused is not None and not outcome.uncertain:
            return await self._refused(tx, outcome, one_line(outcome.refused, MAX_ERROR))
        at = await self._proactive.destination(tx, outcome.principal_id, address=outcome.address_id)
        schedule = await _hold(tx, outcome)
        if schedule is None:
            return None
        if outcome.uncertain:
            log.warning("run.in_doubt", task_id=str(outcome.task_id))
            await schedule_runs.mark_failed(tx, outcome.task_id, IN_DOUBT)
            return None
        await schedule_runs.mark_delivered(tx, outcome.task_id)
        if schedule.failing_since is None or outcome.produced_at < schedule.failing_since:  # no news
            return None
        return await alert_recovery(tx, self._proactive, schedule, at)

    async def _refused(self, tx: Connection, outcome: DeliveryOutcome, why: str) -> MessageRow | None:
        """Send the result once more to another chat; without one, report the failure."""
        told, avoid = self._proactive, outcome.address_id
        elsewhere = None if outcome.again else await told.destination(tx, outcome.principal_id, avoid=avoid)
        at = elsewhere or await told.destination(tx, self._people.owner.id, avoid=avoid)
        schedule = await _hold(tx, outcome)
        if schedule is None:
            return None
        log.warning("run.refused", task_id=str(outcome.task_id), again=elsewhere is not None)
        if elsewhere is not None:
            return await self._again(tx, outcome, elsewhere, schedule.definition.name)
        await schedule_runs.mark_failed(tx, outcome.task_id, f"could not be delivered: {why}")
        return await alert_failure(tx, told, schedule, at, schedule_undelivered(schedule.definition, outcome.slot, why))

    async def _again(self, tx: Connection, outcome: DeliveryOutcome, at: AddressRow, name: str) -> MessageRow:
        """Send the same message to another chat, with the file of a long one."""
        said = await messages.get(tx, outcome.message_id)
        assert said is not None, "messages are never deleted"
        parts = await outbox.of_message(tx, said.id)
        files = [part.file_id for part in parts if part.file_id is not None]
        top = heading(name, said.label, Label.OWNER) if said.text.startswith("From ") else ""
        text = AssistantText(said.text.removeprefix(f"{top}\n\n"))
        sent = parts[0].text.removeprefix(f"{top}\n\n") if files else None
        say = partial(self._proactive.say, tx, at, outcome.principal_id, text, label=said.label, origin=said.origin)
        told = await say(task=outcome.task_id, sent=sent, files=files, heading=top)
        await schedule_runs.set_message(tx, outcome.task_id, told.id)
        return told


async def _hold(tx: Connection, outcome: DeliveryOutcome) -> ScheduleRow | None:
    """Lock its schedule; None if that was removed, or another process has settled the delivery."""
    schedule = await schedule_runs.hold(tx, outcome.schedule_id)
    return schedule if schedule is not None and await schedule_runs.is_current(tx, outcome) else None
