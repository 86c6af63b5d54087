"""Validates schedules, for the tool, the slash command and the command line; and decides which slots of a due schedule
to run, and when it is due next.

"in 20 minutes" is exactly that long after the message, whatever clocks do meanwhile; a day then has 24 hours. A time
without an offset is in the schedule's zone. If a clock change repeats it, the first is used (an offset selects the
other); if a clock change skips it, it is refused. Fractions of seconds are ignored."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Literal, TypeAlias, TypedDict, Unpack, assert_never
from unicodedata import category
from zoneinfo import ZoneInfo

from gateway.domain.errors import SupaclawError, raising
from gateway.domain.text.texts import one_line
from gateway.domain.time import zone as named
from gateway.domain.work.schedules import (
    MOST_COUNTED,
    UTC_ZONE,
    Misfire,
    Once,
    Recurring,
    ScheduleDefinition,
    SlotPlan,
    When,
)
from gateway.timetable.cron import Cron
from gateway.timetable.wording import local, moment

Kind: TypeAlias = Literal["once", "recurring"] | None
_KINDS = {"once": Once, "recurring": Recurring}

LONGEST_NAME = 80
MAX_PROMPT = 4_000
PAST_TOLERANCE = timedelta(seconds=60)
"""A time in the past by no more than this means now."""
MAX_AHEAD = timedelta(days=3_653)
_BREAKS = frozenset({"Cc", "Zl", "Zp"})
_SHAPE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-](0\d|1[0-4]):?\d\d)?", re.ASCII)

_CLOCK = re.compile(r"([01]?\d|2[0-3]):[0-5]\d", re.ASCII)

_UNITS = {"second": 1, "sec": 1, "minute": 60, "min": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_DELAY_PART = rf"(\d{{1,4}}|an?) ({'|'.join(_UNITS)})s?"
_DELAY = re.compile(rf"in {_DELAY_PART}(?:,? (?:and )?{_DELAY_PART})*", re.ASCII | re.IGNORECASE)


class InvalidSchedule(SupaclawError, ValueError):
    """A schedule is invalid; the text says in one line which value is wrong and how to fix it."""

    code = "refused"


class ScheduleChanges(TypedDict, total=False):
    """Fields to set in a schedule; None counts as not given."""

    name: str | None
    prompt: str | None
    schedule_type: Kind
    run_at: str | None
    cron_expr: str | None
    timezone: str | None
    misfire: str | None
    include_session_history: bool | None


def is_delay(run_at: str) -> bool:
    """Whether this is a time like "in 20 minutes", which needs no zone."""
    return _DELAY.fullmatch(run_at.strip()) is not None


def end_of(text: str, *, now: datetime, zone: str | None, asked_at: datetime) -> datetime:
    """When something ends that holds from now on: a time as schedules take it, or the next such time of day ("18:00").

    Raises `InvalidSchedule`; a delay counts from `asked_at`.
    """
    text, zone = text.strip(), zone or UTC_ZONE
    if _DELAY.fullmatch(text):
        text = _delayed(text, min(asked_at, now))
    elif _CLOCK.fullmatch(text):
        there, clock = local(now, zone), text.zfill(5)
        text = f"{there.date() + timedelta(days=clock <= f'{there:%H:%M}')}T{clock}"
    elif not _SHAPE.fullmatch(text):
        raise InvalidSchedule(f'"{one_line(text, 40)}" is not a time; write 18:00, 2027-03-01T09:00 or in 2 hours')
    return _instant(text, zone, now, "the time")


def define(
    *, now: datetime, zone: str | None, asked_at: datetime | None = None, **fields: Unpack[ScheduleChanges]
) -> ScheduleDefinition:
    """Create a schedule from its fields; raises `InvalidSchedule`. `zone` is the user's, the default.

    A delay counts from `asked_at`, by default from `now`.

    Without a type, `run_at` or `cron_expr` determines it; without these too it is a backlog item.
    """
    return amend(ScheduleDefinition("", "", None, zone or UTC_ZONE), now=now, zone=zone, asked_at=asked_at, **fields)


def amend(
    definition: ScheduleDefinition,
    *,
    now: datetime,
    zone: str | None,
    asked_at: datetime | None = None,
    **changes: Unpack[ScheduleChanges],
) -> ScheduleDefinition:
    """Apply changes to a schedule; raises `InvalidSchedule`.

    After a change of zone, cron fields apply to the new zone's clock, and a single time stays the same instant.
    """
    kind, run_at, cron_expr = changes.get("schedule_type"), changes.get("run_at"), changes.get("cron_expr")
    if run_at and is_delay(run_at):
        run_at = _delayed(run_at, min(asked_at or now, now))
    stays = not run_at and not cron_expr and (kind is None or isinstance(definition.when, _KINDS[kind]))
    new_zone = changes.get("timezone") or (None if stays else definition.zone if definition.when else zone)
    zone_name = _zone(new_zone) if new_zone else definition.zone
    misfire, history = changes.get("misfire"), changes.get("include_session_history")
    return ScheduleDefinition(
        name=_name(changes.get("name") or definition.name),
        prompt=_prompt(changes.get("prompt") or definition.prompt),
        when=definition.when if stays else _when(kind, run_at, cron_expr, zone_name, now),
        zone=zone_name,
        misfire=_misfire(misfire) if misfire else definition.misfire,
        include_session_history=definition.include_session_history if history is None else history,
    )


def _when(kind: Kind, run_at: str | None, cron_expr: str | None, zone: str, now: datetime) -> When:
    if run_at and cron_expr:
        raise InvalidSchedule("give run_at (once) or cron_expr (recurring), not both")
    if kind == "once" and not run_at:
        raise InvalidSchedule("once needs run_at: when, such as 2027-03-01T09:00")
    if kind == "recurring" and not cron_expr:
        raise InvalidSchedule('recurring needs cron_expr: 5 fields, such as "30 8 * * 1-5"')
    if run_at:
        return Once(_instant(run_at.strip(), zone, now))
    return Recurring(_fields(cron_expr, zone)) if cron_expr else None


def _fields(cron_expr: str, zone: str) -> str:
    try:
        return Cron(cron_expr, zone).fields
    except ValueError as error:
        raise InvalidSchedule(f"cron_expr: {error}") from error


def _delayed(delay: str, asked_at: datetime) -> str:
    parts = re.findall(_DELAY_PART, delay, re.ASCII | re.IGNORECASE)
    seconds = sum((int(count) if count.isdecimal() else 1) * _UNITS[unit.lower()] for count, unit in parts)
    return (asked_at.astimezone(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def _instant(text: str, zone: str, now: datetime, name: str = "run_at") -> datetime:
    try:
        at = _read(text, named(zone)).astimezone(UTC)
        there = moment(at, zone)
    except (ValueError, OverflowError) as error:
        raise InvalidSchedule(f'{name} "{one_line(text, 40)}": {error}') from error
    if at < now - PAST_TOLERANCE:
        raise InvalidSchedule(f"{name} {there} is in the past: it is {moment(now, zone)} now")
    if at > now + MAX_AHEAD:
        raise InvalidSchedule(f"{name} {there} is more than 10 years ahead")
    return at


def _read(text: str, zone: ZoneInfo) -> datetime:
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise ValueError(
            "write a date and a time of day, such as 2027-03-01T09:00 or 2027-03-01T09:00+01:00, "
            "or such as in 20 minutes"
        )
    at = datetime.fromisoformat(text.upper()).replace(microsecond=0)
    if at.tzinfo is not None:
        return at
    there = at.replace(tzinfo=zone)
    real = there.astimezone(UTC).astimezone(zone)
    if real.replace(tzinfo=None) != at:
        raise ValueError(f"clocks in {zone} are put forward over it; the same time after that is {real:%H:%M}")
    return there


def _zone(name: str) -> str:
    try:
        return named(name.strip()).key
    except ValueError as error:
        raise InvalidSchedule(f"timezone: {error}") from error


def _name(text: str) -> str:
    name = text.strip()
    if not 1 <= len(name) <= LONGEST_NAME or any(category(char) in _BREAKS for char in name):
        raise InvalidSchedule(f"name must be one line of 1-{LONGEST_NAME} characters; this has {len(name)}")
    return name


def _prompt(text: str) -> str:
    prompt = text.strip()
    if not 1 <= len(prompt) <= MAX_PROMPT:
        raise InvalidSchedule(f"prompt must have 1-{MAX_PROMPT} characters; this has {len(prompt)}")
    return prompt


def _misfire(text: str) -> Misfire:
    with raising(InvalidSchedule("misfire must be run_once, skip or catch_up"), ValueError):
        return Misfire(text)


GRACE = timedelta(seconds=60)
"""A slot late by no more than this counts as on time."""
MAX_CATCH_UP = 100
"""The most slots that `catch_up` runs, newest first; older ones are missed."""
_SECOND, _LAST = timedelta(seconds=1), datetime.max.replace(tzinfo=UTC)


def next_slot(definition: ScheduleDefinition, after: datetime) -> datetime | None:
    """The first slot of a schedule that was just created, changed or resumed; None if there is none.

    A single time in the past by no more than the grace period still counts.
    """
    return next(iter(next_slots(definition, after, 1)), None)


def next_slots(definition: ScheduleDefinition, after: datetime, most: int) -> list[datetime]:
    """The first slots of a schedule as `next_slot` finds them, at most `most`."""
    match definition.when:
        case None:
            return []
        case Once(at):
            return [at] if at >= after - GRACE else []
        case Recurring(fields):
            return list(islice(_cached_cron(fields, definition.zone).between(after, _LAST), most))
        case unreachable:
            assert_never(unreachable)


def plan(definition: ScheduleDefinition, due: datetime, now: datetime) -> SlotPlan:
    """Decide at `now` which slots of a schedule to run, whose next one is `due`.

    The next slot is later than all slots run or missed, so setting the clock back repeats none of them.
    """
    if now < due or definition.when is None:
        return SlotPlan(None, due if definition.when else None)
    if isinstance(definition.when, Once):
        late = definition.misfire is Misfire.SKIP and now - due > GRACE
        return SlotPlan(None, None, 1, due, due) if late else SlotPlan(due, None)
    cron = _cached_cron(definition.when.cron, definition.zone)
    newest = max(due, cron.last(now) or due)
    slot = _chosen(definition.misfire, cron, due, newest, now)
    next_slot = cron.after(slot or newest)
    if slot == due:
        return SlotPlan(slot, next_slot)
    missed_until = cron.last(slot - _SECOND) if slot else newest
    if missed_until is None or missed_until < due:
        return SlotPlan(slot, next_slot)
    missed = sum(1 for _ in islice(cron.between(due - _SECOND, missed_until), MOST_COUNTED))
    return SlotPlan(slot, next_slot, missed, due, missed_until)


def _chosen(misfire: Misfire, cron: Cron, due: datetime, newest: datetime, now: datetime) -> datetime | None:
    match misfire:
        case Misfire.RUN_ONCE:
            return newest
        case Misfire.SKIP:
            return newest if now - newest <= GRACE else None
        case Misfire.CATCH_UP:
            return _oldest_caught_up(cron, due, newest)
        case unreachable:
            assert_never(unreachable)


def _oldest_caught_up(cron: Cron, due: datetime, slot: datetime) -> datetime:
    for _ in range(MAX_CATCH_UP - 1):
        earlier = cron.last(slot - _SECOND)
        if earlier is None or earlier < due:
            break
        slot = earlier
    return slot


_cached_cron = lru_cache(maxsize=512)(Cron)
