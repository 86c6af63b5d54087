"""A schedule's times in words, for people.

A stored definition may have become invalid (other zone data, a manual edit); it is still shown.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import assert_never

from gateway.domain.time import is_zone
from gateway.domain.time import zone as named
from gateway.domain.work.schedules import UTC_ZONE, Once, Recurring, ScheduleDefinition
from gateway.timetable.cron import check_fields, numbers

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_PLACES = ("", "first", "second", "third", "fourth", "fifth")
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
    if words is None:
        words = f"{_days(*days)} {_at(minute, hour)}"
    return f"{words} {zone} ({fields})"


def cron_notes(fields: str) -> list[str]:
    """Notes on what people do not expect of these valid fields, each with what to write instead."""
    minute, hour, day, _, weekday = fields.split()
    notes = []
    if not day.startswith("*") and not weekday.startswith("*"):
        either = f"It runs {_of_month(day)} and also {_of_week(weekday)}, not only on days that are both."
        notes.append(f"{either} The first Monday of a month is 1#1 as the day of week and * as the day of month.")
    if "/" in day and day not in _EVERY:
        notes.append(
            f"The days begin anew each month: {_of_month(day)}. Every second Monday is 1%2 as the day of week."
        )
    elif not day.startswith("*") and "L" not in day and min(numbers(day, 2)) > 28 and weekday == "*":
        notes.append("Months without such a day are left out; L as the day of month is the last day of each.")
    if "%" in weekday and not weekday.endswith("%1"):
        days, _, weeks = weekday.partition("%")
        every, _, after = weeks.partition("+")
        other = (int(after or 0) + 1) % int(every)
        notes.append(f"If it should run a week later than shown, write {days}%{every}{f'+{other}' if other else ''}.")
    for place, (name, field, cycle) in enumerate((("hour", minute, 60), ("day", hour, 24))):
        if field.startswith("*/") and not _even_step(field, cycle):
            notes.append(f"The steps begin anew each {name}: {_listed(list(map(str, numbers(field, place))))}.")
    return notes


def _at(minute: str, hour: str) -> str:
    minutes, hours = numbers(minute, 0), numbers(hour, 1)
    if len(minutes) * len(hours) <= _MAX_TIMES:
        return f"at {_listed([f'{h:02}:{m:02}' for h in hours for m in minutes])}"
    if pace := _pace(minute, hour):
        return pace
    of = "every hour" if len(hours) == 24 else f"the hours {_listed(_ranges(hours))}"
    return f"every minute of {of}" if len(minutes) == 60 else f"at minute {_listed(_ranges(minutes))} of {of}"


def _days(day: str, month: str, weekday: str) -> str:
    if weekday == "*" and day.isdecimal() and month == "*":
        return f"every month on the {_ordinal(int(day))}"
    if weekday == "*" and day.isdecimal() and month.isdecimal():
        return f"every year on {int(day)} {_MONTHS[int(month) - 1]}"
    both = " and also " if not day.startswith("*") and not weekday.startswith("*") else ", but only "
    parts = [_of_month(day)] if day != "*" else []
    parts += [_of_week(weekday)] if weekday != "*" else []
    names = [_MONTHS[number - 1] for number in numbers(month, 3)]
    return f"{both.join(parts) or 'every day'}{f' in {_listed(names)}' if month != '*' else ''}"


def _of_month(day: str) -> str:
    last = ["last"] if "L" in day.split(",") else []
    dated = [part for part in day.split(",") if part != "L"]
    days = [*_ranges(numbers(",".join(dated), 2), _ordinal), *last] if dated else last
    return f"on the {_listed(days)} day of the month" if last == days else f"on the {_listed(days)} of the month"


def _of_week(field: str) -> str:
    if field.lower() in {"1-5", "mon-fri"}:
        return "every weekday"
    days, _, weeks = field.partition("%")
    if "#" in days or "L" in days:
        return f"on the {_listed([_placed(part) for part in days.split(',')])} of the month"
    names = [_DAYS[(number - 1) % 7] for number in sorted({number or 7 for number in numbers(days, 4)})]
    every, _, _ = weeks.partition("+")
    if every in {"", "1", "2"}:
        return f"every {'second ' if every == '2' else ''}{_listed(names)}"
    return f"every {every} weeks on {_listed(names)}"


def _placed(part: str) -> str:
    """A weekday by its place in the month: `1#1` or `L5`."""
    name, _, place = part.partition("#")
    return f"{_PLACES[int(place)] if place else 'last'} {_DAYS[numbers(name.removeprefix('L'), 4)[0] - 1]}"


def _ranges(numbers: Sequence[int], shown: Callable[[int], str] = str) -> list[str]:
    """The numbers, with "1 to 7" for three or more in a row."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [
        text
        for run in runs
        for text in ([f"{shown(run[0])} to {shown(run[-1])}"] if len(run) > 2 else list(map(shown, run)))
    ]


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


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}th" if 11 <= number <= 13 else f"{number}{ending}"
