"""Follow up what schedules told until it is delivered, or until it is known that it is not."""

import structlog

from gateway.agent.scheduling.alerts import schedule_undelivered
from gateway.domain.errors import TryAgainLater
from gateway.domain.texts import one_line
from gateway.domain.transcript import AssistantText
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.people import People
from gateway.flow.unattended.alerts import alert_failure, alert_recovery
from gateway.store import outbox
from gateway.store.addresses import AddressRow
from gateway.store.pool import Connection, Database
from gateway.store.scheduling import schedule_runs
from gateway.store.scheduling.schedule_runs import DeliveryOutcome
from gateway.store.scheduling.schedules import ScheduleRow
from gateway.store.transcript import messages
from gateway.store.transcript.messages import MessageRow

BATCH = 100
LONGEST_ERROR = 500
IN_DOUBT = "may not have arrived"

log = structlog.get_logger(__name__)


class DeliveryFollowUp:
    """What was refused is said once more, elsewhere; what may have arrived is never said again."""

    def __init__(self, database: Database, people: People, proactive: ProactiveMessages) -> None:
        self._database = database
        self._people = people
        self._proactive = proactive

    async def settle(self) -> bool:
        """Look once; whether something is still on its way, or left for the next look."""
        if not await self._on_their_way():
            return False
        await self._database.run(lambda tx: schedule_runs.refuse(tx, self._proactive.channels))
        await self._database.run(lambda tx: schedule_runs.deliver(tx, BATCH))
        async with self._database.connection() as conn:
            arrived = await schedule_runs.arrived(conn, BATCH)
        for arrival in arrived:
            await self._settled(arrival)
        return await self._on_their_way()

    async def _on_their_way(self) -> bool:
        async with self._database.connection() as conn:
            return await schedule_runs.on_their_way(conn)

    async def _settled(self, arrival: DeliveryOutcome) -> None:
        try:
            told = await self._database.run(lambda tx: self._settle(tx, arrival))
        except TryAgainLater:
            raise
        except Exception:  # the others are not kept waiting for it
            log.exception("run.unsettled", task_id=str(arrival.task_id))
        else:
            if told is not None:
                self._proactive.told(told)

    async def _settle(self, tx: Connection, arrival: DeliveryOutcome) -> MessageRow | None:
        """One transaction; what was said in it."""
        if arrival.refused is not None and not arrival.uncertain:
            return await self._refused(tx, arrival, one_line(arrival.refused, LONGEST_ERROR))
        at = await self._proactive.destination(tx, arrival.principal_id, address=arrival.address_id)
        schedule = await _hold(tx, arrival)
        if schedule is None:
            return None
        if arrival.uncertain:
            log.warning("run.in_doubt", task_id=str(arrival.task_id))
            await schedule_runs.failed(tx, arrival.task_id, IN_DOUBT)
            return None
        await schedule_runs.delivered(tx, arrival.task_id)
        if schedule.failing_since is None or arrival.produced_at < schedule.failing_since:  # it says nothing of later
            return None
        return await alert_recovery(tx, self._proactive, schedule, at)

    async def _refused(self, tx: Connection, arrival: DeliveryOutcome, why: str) -> MessageRow | None:
        """Once more where its person is told otherwise; where that is nowhere, its owner hears of it."""
        told, avoid = self._proactive, arrival.address_id
        elsewhere = None if arrival.again else await told.destination(tx, arrival.principal_id, avoid=avoid)
        at = elsewhere or await told.destination(tx, self._people.owner.id, avoid=avoid)
        schedule = await _hold(tx, arrival)
        if schedule is None:
            return None
        log.warning("run.refused", task_id=str(arrival.task_id), again=elsewhere is not None)
        if elsewhere is not None:
            return await self._again(tx, arrival, elsewhere)
        await schedule_runs.failed(tx, arrival.task_id, f"could not be delivered: {why}")
        return await alert_failure(tx, told, schedule, at, schedule_undelivered(schedule.definition, arrival.slot, why))

    async def _again(self, tx: Connection, arrival: DeliveryOutcome, at: AddressRow) -> MessageRow:
        """As it was said, with the file of a long one."""
        said = await messages.get(tx, arrival.message_id)
        assert said is not None, "messages are never deleted"
        parts = await outbox.of_message(tx, said.id)
        files = [part.file_id for part in parts if part.file_id is not None]
        told = await self._proactive.say(
            tx,
            at,
            arrival.principal_id,
            AssistantText(said.text),
            label=said.label,
            origin=said.origin,
            task=arrival.task_id,
            sent=parts[0].text if files else None,
            files=files,
        )
        await schedule_runs.moved(tx, arrival.task_id, told.id)
        return told


async def _hold(tx: Connection, arrival: DeliveryOutcome) -> ScheduleRow | None:
    """Its schedule; None if that is gone, or somebody else has dealt with it."""
    schedule = await schedule_runs.hold(tx, arrival.schedule_id)
    return schedule if schedule is not None and await schedule_runs.still(tx, arrival) else None
