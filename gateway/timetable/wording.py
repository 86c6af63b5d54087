"""A schedule's times in words, for people.

A stored definition may have become invalid (other zone data, a manual edit); it is still shown.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from gateway.domain.time import is_zone
from gateway.domain.time import zone as named
from gateway.domain.work.schedules import UTC_ZONE, Once, Recurring, ScheduleDefinition
from gateway.timetable.cron import check_fields

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EVERY = ("*", "*/1")
_MAX_TIMES = 4


def in_words(definition: ScheduleDefinition) -> str:
    """When it runs: "once, Sun 22 Nov 2026 09:00 Europe/Berlin", "every weekday at 08:30 …" or "backlog"."""
    match definition.when:
        case None:
            return "backlog"
        case Once(at):
            return f"once, {moment(at, definition.zone)}"
        case Recurring(fields):
            return _recurring(fields, definition.zone)
        case unreachable:
            assert_never(unreachable)


def moment(at: datetime, zone: str) -> str:
    """An instant on the wall clock of the zone: "Sun 22 Nov 2026 09:00 Europe/Berlin"."""
    there = local(at, zone)
    clock = f"{there:%H:%M:%S}" if there.second else f"{there:%H:%M}"
    return f"{_DAYS[there.weekday()][:3]} {there.day} {_MONTHS[there.month - 1]} {there.year} {clock} {there.tzinfo}"


def local(at: datetime, zone: str) -> datetime:
    """The instant in the zone, or in UTC if the zone does not exist."""
    return at.astimezone(named(zone if is_zone(zone) else UTC_ZONE))


def _recurring(fields: str, zone: str) -> str:
    try:
        minute, hour, *days = check_fields(fields).split()
    except ValueError:
        return f"by cron {fields} {zone}, which is not valid"
    words = _pace(minute, hour) if days == ["*", "*", "*"] else None
    if words is None and (on := _days(*days)) and (at := _times(minute, hour)):
        words = f"{on} at {at}"
    return f"{words} {zone} ({fields})" if words else f"by cron {fields} {zone}"


def _pace(minute: str, hour: str) -> str | None:
    if hour in _EVERY:
        if minute == "0" or minute in _EVERY:
            return "every hour" if minute == "0" else "every minute"
        if minute.isdecimal():
            return f"every hour at minute {int(minute)}"
        return f"every {step} minutes" if (step := _even_step(minute, 60)) else None
    return f"every {step} hours" if minute == "0" and (step := _even_step(hour, 24)) else None


def _even_step(field: str, cycle: int) -> int | None:
    step = int(field[2:]) if field.startswith("*/") else 0
    return step if step and cycle % step == 0 else None


def _days(day: str, month: str, weekday: str) -> str | None:
    if (day, month) == ("*", "*"):
        return "every day" if weekday == "*" else _weekdays(weekday)
    if weekday != "*" or not day.isdecimal():
        return None
    if month == "*":
        return f"every month on the {_ordinal(int(day))}"
    return f"every year on {int(day)} {_MONTHS[int(month) - 1]}" if month.isdecimal() else None


def _weekdays(field: str) -> str | None:
    """A list of weekdays, or the range "weekday", in words; None if it has no simple wording."""
    if field.lower() in {"1-5", "mon-fri"}:
        return "every weekday"
    numbers = [_weekday(part) for part in field.split(",")]
    names = [_DAYS[number] for number in sorted({number for number in numbers if number is not None})]
    return None if None in numbers else f"every {_listed(names)}"


def _weekday(text: str) -> int | None:
    """The number of a weekday, counted from Monday."""
    if text in {"0", "1", "2", "3", "4", "5", "6", "7"}:
        return (int(text) - 1) % 7
    short = [day[:3].lower() for day in _DAYS]
    return short.index(text.lower()) if text.lower() in short else None


def _times(minute: str, hour: str) -> str | None:
    hours = hour.split(",")
    if not minute.isdecimal() or not all(map(str.isdecimal, hours)) or len(hours) > _MAX_TIMES:
        return None
    return _listed([f"{each:02}:{int(minute):02}" for each in sorted(set(map(int, hours)))])


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}th" if 11 <= number <= 13 else f"{number}{ending}"
