"""Alerts on schedules: one notice when it starts to fail, and one when it works again."""

import structlog

from gateway.agent.work.schedules import schedule_works
from gateway.domain.conversation.transcript import Notice
from gateway.domain.work.schedules import Recurring
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.scheduling import schedule_runs
from gateway.store.scheduling.schedules import ScheduleRow
from gateway.store.transcript.messages import MessageRow

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
    return await proactive.say(tx, at, at.principal_id, notice, label=schedule.label, origin="gateway")


async def alert_recovery(
    tx: Connection, proactive: ProactiveMessages, schedule: ScheduleRow, at: AddressRow | None
) -> MessageRow | None:
    """Say that it works again, if a notice said that it failed; the caller holds the schedule."""
    if schedule.failing_since is None:
        return None
    await schedule_runs.set_failing(tx, schedule.id, failing=False)
    if at is None:
        return None
    notice = schedule_works(schedule.definition)
    return await proactive.say(tx, at, at.principal_id, notice, label=schedule.label, origin="gateway")
