"""The end of a schedule's run: how far its slot came, and what its person hears of failures."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.agent.work.schedules import schedule_failed
from gateway.domain.ids import MessageId
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.turn.finish import Finished
from gateway.flow.unattended.alerts import alert_failure, alert_recovery
from gateway.flow.unattended.origins import Deliver, UnattendedResult
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.scheduling import schedule_runs
from gateway.store.scheduling.schedules import ScheduleRow
from gateway.store.transcript.messages import MessageRow

NO_CHAT = "no chat to deliver to"


@dataclass(frozen=True, slots=True)
class ScheduleOrigin:
    """Schedules; `follow` watches what was said until it is delivered, `wake` looks for the next slot."""

    proactive: ProactiveMessages
    follow: Callable[[MessageId], None]
    wake: Callable[[], None]

    async def unwanted(self, tx: Connection, run: Claim) -> str | None:
        """The run of a schedule that was removed."""
        return None if await schedule_runs.known(tx, run.id) else "its schedule was removed"

    async def dropped(self, tx: Connection, run: Claim, why: str) -> None:
        """The slot's history says why."""
        await schedule_runs.failed(tx, run.id, why)

    async def ended(self, tx: Connection, ended: UnattendedResult, at: AddressRow | None, deliver: Deliver) -> Finished:
        """How far the slot came, which the schedule's row guards."""
        planned = ended.assignment.schedule
        schedule = await schedule_runs.hold(tx, planned) if planned is not None else None
        if schedule is None:  # removed meanwhile
            return Finished(Status.CANCELLED)
        if ended.reason is not None:
            return Finished(Status.FAILED, ended.reason, await self._fail(tx, ended, ended.reason, schedule, at))
        await schedule_runs.executed(tx, ended.run.id)
        if ended.tells:
            return Finished(Status.COMPLETED, sent=await _delivered(tx, ended, deliver))
        # That a schedule works again is said here only if no result is on its way.
        return Finished(Status.COMPLETED, sent=await alert_recovery(tx, self.proactive, schedule, at))

    async def _fail(
        self, tx: Connection, ended: UnattendedResult, reason: str, schedule: ScheduleRow, at: AddressRow | None
    ) -> MessageRow | None:
        await schedule_runs.failed(tx, ended.run.id, reason)
        slot = ended.assignment.slot
        assert slot is not None, "a schedule's run has one"
        notice = schedule_failed(schedule.definition, slot, reason)
        return await alert_failure(tx, self.proactive, schedule, at, notice)

    def after(self, sent: MessageRow | None) -> None:
        """The next slot may be due now, and what was said is followed until it is delivered."""
        if sent is not None:
            self.follow(sent.id)
        self.wake()


async def _delivered(tx: Connection, ended: UnattendedResult, deliver: Deliver) -> MessageRow | None:
    said = await deliver()
    await schedule_runs.produced(tx, ended.run.id, said.id if said else None)
    if said is None:
        await schedule_runs.failed(tx, ended.run.id, NO_CHAT)
    return said
