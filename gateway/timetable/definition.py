"""Validates schedules, for the tool, the slash command and the command line.

"in 20 minutes" is exactly that long after it was said, whatever clocks do meanwhile; days have 24 hours there.
A time without an offset is in the schedule's zone. If a clock change repeats it, the first is used (an offset
selects the other); if a clock change skips it, it is refused. Fractions of seconds are ignored.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias, TypedDict, Unpack, assert_never
from unicodedata import category
from zoneinfo import ZoneInfo

from gateway.domain.text.texts import one_line
from gateway.domain.work.schedules import UTC_ZONE, Definition, Misfire, Once, Recurring, When
from gateway.domain.zones import zone as named
from gateway.timetable.cron import Cron
from gateway.timetable.wording import moment

Kind: TypeAlias = Literal["once", "recurring"] | None

LONGEST_NAME = 80
MAX_PROMPT = 4_000
PAST_TOLERANCE = timedelta(seconds=60)
"""A time in the past by no more than this means now."""
MAX_AHEAD = timedelta(days=3_653)
_BREAKS = frozenset({"Cc", "Zl", "Zp"})
_SHAPE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-](0\d|1[0-4]):?\d\d)?", re.ASCII)

_UNITS = {"second": 1, "sec": 1, "minute": 60, "min": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_PART = rf"(\d{{1,4}}|an?) ({'|'.join(_UNITS)})s?"
_DELAY = re.compile(rf"in {_PART}(?:,? (?:and )?{_PART})*", re.ASCII | re.IGNORECASE)


class Refused(ValueError):
    """A schedule is invalid; the text says in one line which value is wrong and how to fix it."""


class Changes(TypedDict, total=False):
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


def define(*, now: datetime, zone: str | None, asked_at: datetime | None = None, **said: Unpack[Changes]) -> Definition:
    """Create a schedule from its fields; raises `Refused`. `zone` is the user's, the default.

    A delay counts from `asked_at`, by default from `now`.

    Without a type, `run_at` or `cron_expr` determines it; without these too it is a backlog item.
    """
    return amend(Definition("", "", None, zone or UTC_ZONE), now=now, zone=zone, asked_at=asked_at, **said)


def amend(
    definition: Definition,
    *,
    now: datetime,
    zone: str | None,
    asked_at: datetime | None = None,
    **changes: Unpack[Changes],
) -> Definition:
    """Apply changes to a schedule; raises `Refused`.

    After a change of zone, cron fields apply to the new zone's clock, and a single time stays the same instant.
    """
    kind, run_at, cron_expr = changes.get("schedule_type"), changes.get("run_at"), changes.get("cron_expr")
    if run_at and is_delay(run_at):
        run_at = _after(run_at, min(asked_at or now, now))
    stays = not run_at and not cron_expr and kind in {None, _kind(definition.when)}
    said_zone = changes.get("timezone") or (None if stays else definition.zone if definition.when else zone)
    its_zone = _zone(said_zone) if said_zone else definition.zone
    misfire, history = changes.get("misfire"), changes.get("include_session_history")
    return Definition(
        name=_name(changes.get("name") or definition.name),
        prompt=_prompt(changes.get("prompt") or definition.prompt),
        when=definition.when if stays else _when(kind, run_at, cron_expr, its_zone, now),
        zone=its_zone,
        misfire=_misfire(misfire) if misfire else definition.misfire,
        include_session_history=definition.include_session_history if history is None else history,
    )


def _kind(when: When) -> Kind:
    match when:
        case Once():
            return "once"
        case Recurring():
            return "recurring"
        case None:
            return None
        case unreachable:
            assert_never(unreachable)


def _when(kind: Kind, run_at: str | None, cron_expr: str | None, zone: str, now: datetime) -> When:
    if run_at and cron_expr:
        raise Refused("give run_at (once) or cron_expr (recurring), not both")
    if kind == "once" and not run_at:
        raise Refused("once needs run_at: when, such as 2027-03-01T09:00")
    if kind == "recurring" and not cron_expr:
        raise Refused('recurring needs cron_expr: 5 fields, such as "30 8 * * 1-5"')
    if run_at:
        return Once(_instant(run_at.strip(), zone, now))
    return Recurring(_fields(cron_expr, zone)) if cron_expr else None


def _fields(cron_expr: str, zone: str) -> str:
    try:
        return Cron(cron_expr, zone).fields
    except ValueError as error:
        raise Refused(f"cron_expr: {error}") from error


def _after(delay: str, asked_at: datetime) -> str:
    parts = re.findall(_PART, delay, re.ASCII | re.IGNORECASE)
    seconds = sum((int(count) if count.isdecimal() else 1) * _UNITS[unit.lower()] for count, unit in parts)
    return (asked_at.astimezone(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def _instant(text: str, zone: str, now: datetime) -> datetime:
    try:
        at = _read(text, named(zone)).astimezone(UTC)
        there = moment(at, zone)
    except (ValueError, OverflowError) as error:
        raise Refused(f'run_at "{one_line(text, 40)}": {error}') from error
    if at < now - PAST_TOLERANCE:
        raise Refused(f"run_at {there} is in the past: it is {moment(now, zone)} now")
    if at > now + MAX_AHEAD:
        raise Refused(f"run_at {there} is more than 10 years ahead")
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
        raise Refused(f"timezone: {error}") from error


def _name(text: str) -> str:
    name = text.strip()
    if not 1 <= len(name) <= LONGEST_NAME or any(category(char) in _BREAKS for char in name):
        raise Refused(f"name must be one line of 1-{LONGEST_NAME} characters; this has {len(name)}")
    return name


def _prompt(text: str) -> str:
    prompt = text.strip()
    if not 1 <= len(prompt) <= MAX_PROMPT:
        raise Refused(f"prompt must have 1-{MAX_PROMPT} characters; this has {len(prompt)}")
    return prompt


def _misfire(text: str) -> Misfire:
    try:
        return Misfire(text)
    except ValueError as error:
        raise Refused("misfire must be run_once, skip or catch_up") from error
