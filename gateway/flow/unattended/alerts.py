"""Failing: that a schedule does not work is told once, and once that it works again."""

import structlog

from gateway.agent.scheduling.alerts import schedule_works
from gateway.domain.schedules import Recurring
from gateway.domain.transcript import Notice
from gateway.flow.outbound.proactive import Delivering
from gateway.store.addresses import AddressRow
from gateway.store.pool import Connection
from gateway.store.scheduling import schedule_runs
from gateway.store.scheduling.schedules import ScheduleRow
from gateway.store.transcript.messages import MessageRow

log = structlog.get_logger(__name__)


async def fails(
    tx: Connection, delivering: Delivering, schedule: ScheduleRow, at: AddressRow | None, notice: Notice
) -> MessageRow | None:
    """Tell it, unless it is recurring and that was told; the caller holds the schedule. Without a chat the log is told.

    What runs only once is told of each time.
    """
    if schedule.failing_since is not None and isinstance(schedule.definition.when, Recurring):
        return None
    if at is None:
        log.warning("schedule.untold", schedule=schedule.id)
        return None
    await schedule_runs.set_failing(tx, schedule.id, failing=True)
    return await delivering.say(tx, at, at.principal_id, notice, label=schedule.label, origin="gateway")


async def works(
    tx: Connection, delivering: Delivering, schedule: ScheduleRow, at: AddressRow | None
) -> MessageRow | None:
    """Tell it, if its failure was told; the caller holds the schedule."""
    if schedule.failing_since is None:
        return None
    await schedule_runs.set_failing(tx, schedule.id, failing=False)
    if at is None:
        return None
    notice = schedule_works(schedule.definition)
    return await delivering.say(tx, at, at.principal_id, notice, label=schedule.label, origin="gateway")
