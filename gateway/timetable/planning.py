"""Decides which slot of a due schedule to run, and when it is due next."""

from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import assert_never

from gateway.domain.work.schedules import MOST_COUNTED, Definition, Misfire, Once, Plan, Recurring
from gateway.timetable.cron import Cron

GRACE = timedelta(seconds=60)
"""A slot late by no more than this counts as on time."""
MAX_CATCH_UP = 100
"""The most slots that `catch_up` runs, newest first; older ones are missed."""
_SECOND = timedelta(seconds=1)


def next_slot(definition: Definition, after: datetime) -> datetime | None:
    """The first slot of a schedule that was just created, changed or resumed; None if there is none.

    A single time in the past by no more than the grace period still counts.
    """
    match definition.when:
        case None:
            return None
        case Once(at):
            return at if at >= after - GRACE else None
        case Recurring(fields):
            return _cron(fields, definition.zone).after(after)
        case unreachable:
            assert_never(unreachable)


def next_slots(definition: Definition, after: datetime, most: int) -> list[datetime]:
    """The first slots of such a schedule, at most `most`."""
    first = next_slot(definition, after)
    if first is None or not isinstance(definition.when, Recurring):
        return [first] if first else []
    found, cron = [first], _cron(definition.when.cron, definition.zone)
    while len(found) < most and (slot := cron.after(found[-1])):
        found.append(slot)
    return found


def plan(definition: Definition, due: datetime, now: datetime) -> Plan:
    """Plan at `now` for a schedule whose next slot is `due`.

    The next slot is later than all slots run or missed, so setting the clock back repeats none of them.
    """
    if now < due or definition.when is None:
        return Plan(None, due if definition.when else None)
    if isinstance(definition.when, Once):
        late = definition.misfire is Misfire.SKIP and now - due > GRACE
        return Plan(None, None, 1, due, due) if late else Plan(due, None)
    cron = _cron(definition.when.cron, definition.zone)
    newest = max(due, cron.last(now) or due)
    slot = _chosen(definition.misfire, cron, due, newest, now)
    next_slot = cron.after(slot or newest)
    if slot == due:
        return Plan(slot, next_slot)
    missed_until = cron.last(slot - _SECOND) if slot else newest
    if missed_until is None or missed_until < due:
        return Plan(slot, next_slot)
    missed = sum(1 for _ in islice(cron.between(due - _SECOND, missed_until), MOST_COUNTED))
    return Plan(slot, next_slot, missed, due, missed_until)


def _chosen(misfire: Misfire, cron: Cron, due: datetime, newest: datetime, now: datetime) -> datetime | None:
    match misfire:
        case Misfire.RUN_ONCE:
            return newest
        case Misfire.SKIP:
            return newest if now - newest <= GRACE else None
        case Misfire.CATCH_UP:
            return _oldest(cron, due, newest)
        case unreachable:
            assert_never(unreachable)


def _oldest(cron: Cron, due: datetime, slot: datetime) -> datetime:
    for _ in range(MAX_CATCH_UP - 1):
        earlier = cron.last(slot - _SECOND)
        if earlier is None or earlier < due:
            break
        slot = earlier
    return slot


_cron = lru_cache(maxsize=512)(Cron)
