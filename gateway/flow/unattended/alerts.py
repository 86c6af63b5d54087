"""Alerts on schedules: a failure is told once, and so is the recovery."""

import structlog

from gateway.agent.scheduling.alerts import schedule_works
from gateway.domain.schedules import Recurring
from gateway.domain.transcript import Notice
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.store.addresses import AddressRow
from gateway.store.pool import Connection
from gateway.store.scheduling import schedule_runs
from gateway.store.scheduling.schedules import ScheduleRow
from gateway.store.transcript.messages import MessageRow

log = structlog.get_logger(__name__)


async def alert_failure(
    tx: Connection, proactive: ProactiveMessages, schedule: ScheduleRow, at: AddressRow | None, notice: Notice
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
    return await proactive.say(tx, at, at.principal_id, notice, label=schedule.label, origin="gateway")


async def alert_recovery(
    tx: Connection, proactive: ProactiveMessages, schedule: ScheduleRow, at: AddressRow | None
) -> MessageRow | None:
    """Tell it, if its failure was told; the caller holds the schedule."""
    if schedule.failing_since is None:
        return None
    await schedule_runs.set_failing(tx, schedule.id, failing=False)
    if at is None:
        return None
    notice = schedule_works(schedule.definition)
    return await proactive.say(tx, at, at.principal_id, notice, label=schedule.label, origin="gateway")
