"""Parses reminders in plain words without a model: a few forms, each matched exactly or not at all."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gateway.domain.text.texts import one_line

FORMS = """\
I understand these forms:
- remind me in 20 minutes to …
- remind me at 18:30 to …
- remind me tomorrow at 9 to …
- remind me on monday at 9:30pm to …
- every day at 8:30 …
- every weekday at 8:30 …
- my reminders"""

TASK = "Remind the user: "

_WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = f"(?:every (?:day|weekday|{'|'.join(_WEEK)})|today|tomorrow|(?:on )?(?:{'|'.join(_WEEK)}))"
_CLOCK = r"at (?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))? ?(?P<half>am|pm)?"
_AT = rf"(?:(?P<before>{_DAY}) )?{_CLOCK}\b(?: (?P<after>{_DAY}))?"
_IN = r"in (?P<count>\d{1,4}|an?) (?P<unit>minute|min|hour|day|week)s?"
_WHEN = rf"(?P<when>{_AT}|{_IN})"
_ASK = r"(?:please )?remind me"
_SHAPES = tuple(
    re.compile(shape, re.IGNORECASE)
    for shape in (
        rf"{_ASK} {_WHEN}(?: to| that| about| of)?[,:]? (?P<what>.+)",
        rf"{_WHEN},? {_ASK}(?: to| that| about| of)?[,:]? (?P<what>.+)",
        rf"{_ASK}(?: to| that| about| of|:) (?P<what>.+?),? {_WHEN}",
        rf"(?P<when>(?P<before>every [a-z]+) {_CLOCK})\b[,:]? (?P<what>.+)",
    )
)
_LIST = re.compile(r"(?:(?:list|show)(?: me)? )?(?:all )?(?:my )?reminders", re.IGNORECASE)
_MAX_CHARS = 40


@dataclass(frozen=True, slots=True)
class Time:
    """When to remind: the arguments for the tool `cron`, and the same in words."""

    arguments: Mapping[str, str]
    words: str


def parse_request(message: str, sent_at: datetime) -> Mapping[str, str] | None:
    """The `cron` arguments that a message asks for; None if the message matches no form.

    `sent_at` is in the sender's time zone.
    """
    text = " ".join(message.split()).rstrip(".!?")
    if _LIST.fullmatch(text):
        return {"action": "list"}
    for shape in _SHAPES:
        if (found := shape.fullmatch(text)) and (time := _time(found.groupdict(), sent_at)):
            what = found["what"]
            name = f"{one_line(what, _MAX_CHARS)}, {time.words}"
            return {"action": "add", "name": name, "prompt": f"{TASK}{what}", **time.arguments}
    return None


def about_reminders(message: str) -> bool:
    """Whether a message seems to ask for a reminder."""
    return re.match(r"(please )?remind\b|every\b|.*\breminders?\b", message, re.IGNORECASE) is not None


def _time(found: Mapping[str, str | None], sent_at: datetime) -> Time | None:
    if unit := found.get("unit"):
        return _after(found.get("count") or "", unit.lower(), sent_at)
    clock = _clock(int(found["hour"] or 0), int(found["minute"] or 0), (found["half"] or "").lower())
    days = [day.lower() for each in ("before", "after") if (day := found.get(each))]
    if clock is None or len(days) > 1:
        return None
    words = " ".join((found["when"] or "").lower().split())
    day = days[0].removeprefix("on ") if days else ""
    if day.startswith("every "):
        return _again(day.removeprefix("every "), clock, words)
    at = _on(day, sent_at.replace(hour=clock[0], minute=clock[1], second=0, microsecond=0), sent_at)
    return Time({"schedule_type": "once", "run_at": f"{at:%Y-%m-%dT%H:%M}"}, words)


def _after(count: str, unit: str, sent_at: datetime) -> Time:
    """Counted by the tool from the second the message was sent, which its timestamp does not tell."""
    number = int(count) if count.isdecimal() else 1
    length = {"min": 1, "minute": 1, "hour": 60, "day": 1440, "week": 10_080}[unit]
    at = sent_at.astimezone(UTC) + timedelta(minutes=number * length)
    words = f"at {at.astimezone(sent_at.tzinfo):%H:%M}"
    return Time({"schedule_type": "once", "run_at": f"in {number} {unit}{'s' * (number != 1)}"}, words)


def _again(day: str, clock: tuple[int, int], words: str) -> Time | None:
    days = {"day": "*", "weekday": "1-5", **{name: str((number + 1) % 7) for number, name in enumerate(_WEEK)}}
    if day not in days:
        return None
    return Time({"schedule_type": "recurring", "cron_expr": f"{clock[1]} {clock[0]} * * {days[day]}"}, words)


def _on(day: str, at: datetime, sent_at: datetime) -> datetime:
    """That time on the given day; without a day, or on a day of the week, its next occurrence."""
    match day:
        case "today":
            return at
        case "tomorrow":
            return at + timedelta(days=1)
        case "":
            return at if at > sent_at else at + timedelta(days=1)
        case _:
            ahead = (_WEEK.index(day) - at.weekday()) % 7
            return at + timedelta(days=ahead if ahead or at > sent_at else 7)


def _clock(hour: int, minute: int, half: str) -> tuple[int, int] | None:
    if half and not 1 <= hour <= 12:
        return None
    hour = hour % 12 + 12 * (half == "pm") if half else hour
    return (hour, minute) if hour < 24 and minute < 60 else None


def describe_result(result: str) -> str:
    """The result of a `cron` call, worded for the user."""
    try:
        facts = json.loads(result)
    except ValueError:  # truncated to fit the prompt
        return result
    match facts:
        case {"schedules": []}:
            return "You have no reminders."
        case {"schedules": list(listed)}:
            more = [f"and {facts['more']} more"] if "more" in facts else []
            lines = [f"- {each['id']}: {each['name']} ({each['in_words']})" for each in listed]
            return "\n".join([*lines, *more, "", "`/schedules remove NUMBER` removes one."])
        case {"name": name, "next_run": at, "in": left}:
            unknown = " Your time zone is unknown, so I used UTC; set `owner.timezone` in `config.json`."
            return f"Noted: {name}. Next: {at}, in {left}.{unknown * ('note' in facts)}"
        case {"message": str(problem)}:
            return problem
        case _:
            return "Done."
