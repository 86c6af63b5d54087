"""Answers while no model is connected: says so, and how to connect one. It never pretends to be a model.

It sets reminders from a few forms of plain words, each matched exactly or not at all."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from gateway.domain.conversation.model import (
    AssistantMessage,
    Prompt,
    PromptMessage,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from gateway.domain.json import json_or_text
from gateway.domain.settings import Params
from gateway.domain.text.texts import one_line
from gateway.domain.time import is_zone, zone
from gateway.llm.provider import Provider, ProviderEvents, ProviderReply
from gateway.llm.vendors import VENDORS, Endpoint, Vendor

_COMMANDS_HINT = "Commands work without a model: `/help`, `/status`, `/model`."
_REMINDERS_HINT = " Reminders do too: remind me tomorrow at 9 to call Ada."
_NOT_CONNECTED = "No model is connected yet."
_OLLAMA_MODEL = "qwen3"
_GREETING = re.compile(
    r"\s*(hi|hello|hey|yo|good (morning|afternoon|evening)|hallo|hola|salut|/start)\b", re.IGNORECASE
)
_CONNECT = re.compile(r"\b(connect|key|model|set ?up|configure|install|provider)\b", re.IGNORECASE)
_CHOICES = tuple(vendor for vendor in VENDORS if vendor.model or vendor.prefix == "ollama")
_STAMP = re.compile(
    r"^\[[A-Z][a-z]{2} (20\d\d-\d\d-\d\d \d\d:\d\d UTC(?:[+-]\d{1,2}(?::\d\d)?)?)(?: [^\]\n]*)?\] ",
    re.MULTILINE | re.ASCII,
)
_ZONE = re.compile(r"^You (?:are talking with|work for) .*\. Their time zone is ([\w/+-]+)\.$", re.MULTILINE)
_SCHEDULED = re.compile(r"Scheduled task \d+: ")
_LATE = re.compile(r"^Planned for: (.+)\nLate: ", re.MULTILINE)
_NAMES = {"claude": "anthropic", "gpt": "openai", "chatgpt": "openai", "google": "gemini", "grok": "xai"}


def build(_: Endpoint) -> Provider:
    """The guide needs no endpoint."""
    return Guide()


class Guide(Provider):
    """Deterministic: the same question always gets the same answer."""

    async def stream(self, _model: str, prompt: Prompt, _params: Params, /) -> ProviderEvents:
        """Answer the newest user message, and report the results of the calls before it."""
        reply = _reply(prompt)
        if reply.text:
            yield TextDelta(reply.text)
        yield reply


def _reply(prompt: Prompt) -> ProviderReply:
    new = _since_the_last_reply(prompt.messages)
    texts = [describe_result(message.text) for message in new if isinstance(message, ToolMessage)]
    calls: tuple[ToolCall, ...] = ()
    latest = next((message.text for message in reversed(new) if isinstance(message, UserMessage)), None)
    if latest is not None or not texts:
        *_, stamp, text = ("", *_STAMP.split(latest or ""))
        sent_at = _local(stamp, prompt) if _can_remind(prompt) else None
        arguments = parse_reminder(text, sent_at) if sent_at else None
        if arguments:
            calls = (ToolCall("", "cron", json.dumps(arguments)),)
        else:
            texts.append(_without_a_call(text, prompt))
    return ProviderReply("\n\n".join(texts), calls, Usage())


def _since_the_last_reply(messages: Sequence[PromptMessage]) -> Sequence[PromptMessage]:
    last = max((place for place, each in enumerate(messages) if isinstance(each, AssistantMessage)), default=-1)
    return messages[last + 1 :]


def _without_a_call(text: str, prompt: Prompt) -> str:
    if _SCHEDULED.match(text):
        *_, prompted = text.split("\n\n", 2)
        late = _LATE.search(text)
        return f"Reminder{f' of {late[1]}' if late else ''}: {prompted.removeprefix(REMINDER_PROMPT)}"
    if _can_remind(prompt) and about_reminders(text):
        return f"{_NOT_CONNECTED} {REMINDER_FORMS}"
    return f"{answer(text)}{_REMINDERS_HINT if _can_remind(prompt) else ''}"


def _can_remind(prompt: Prompt) -> bool:
    return any(tool.name == "cron" for tool in prompt.tools)


def _local(stamp: str, prompt: Prompt) -> datetime | None:
    """When a message was sent, in its sender's zone, or UTC if that is unknown; None without a timestamp."""
    try:
        clock, _, offset = stamp.rpartition(" UTC")
        hours, _, minutes = offset[1:].partition(":")
        ahead = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if offset.startswith("-") else 1)
        sent_at = datetime.strptime(clock, "%Y-%m-%d %H:%M").replace(tzinfo=UTC) - ahead
    except ValueError:  # it only looks like a timestamp
        return None
    standing = "\n".join(message.text for message in prompt.messages if isinstance(message, SystemMessage))
    named = [name for name in _ZONE.findall(standing) if is_zone(name)]
    return sent_at.astimezone(zone(named[-1])) if named else sent_at


def answer(message: str) -> str:
    """The guide's answer to a message."""
    words = {_NAMES.get(word, word) for word in re.findall(r"[a-z]+", message.lower())}
    named = [vendor for vendor in _CHOICES if vendor.prefix in words]
    steps = "\n\n".join(map(_steps, named)) if named else _all_steps()
    return f"{_opening(message)}\n\n{steps}\n\n{_COMMANDS_HINT}"


def _opening(message: str) -> str:
    if _CONNECT.search(message):
        return _NOT_CONNECTED
    if _GREETING.match(message):
        return f"Hello! {_NOT_CONNECTED} Until then I can only guide you."
    return f"{_NOT_CONNECTED} Your message is stored, but I cannot answer it."


def _all_steps() -> str:
    keys = "\n".join(f"- {vendor.title}: `{vendor.keys[0]}` ({vendor.keys_page})" for vendor in _CHOICES if vendor.keys)
    return (
        "To connect one, paste its key under **Setup** on the page or into `supaclaw init`. Or set it in the "
        "environment and restart:\n"
        f"{keys}\n- Ollama, on your own machine: `ollama pull {_OLLAMA_MODEL}`, no key needed\n\n"
        "Or put the key into `config.json`, which takes effect at once. "
        'Ask me "how do I connect Anthropic?" for the line.'
    )


def _steps(vendor: Vendor) -> str:
    if not vendor.keys:
        return (
            f"**{vendor.title}**: run `ollama pull {_OLLAMA_MODEL}` and `supaclaw init`, or put into `config.json`:\n"
            f'```json\n"models": {{"primary": "ollama/{_OLLAMA_MODEL}"}}\n```'
        )
    key = vendor.keys[0]
    return (
        f"**{vendor.title}**: get a key at {vendor.keys_page}, set `{key}=…` in the environment and restart me, "
        "or put it into `config.json`:\n"
        f'```json\n"models": {{"providers": {{"{vendor.prefix}": {{"api_key": "…"}}}}}}\n```'
    )


REMINDER_FORMS = """\
I understand these forms:
- remind me in 20 minutes to …
- remind me at 18:30 to …
- remind me tomorrow at 9 to …
- remind me on monday at 9:30pm to …
- every day at 8:30 …
- every weekday at 8:30 …
- my reminders"""

REMINDER_PROMPT = "Remind the user: "

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
_LIST_REQUEST = re.compile(r"(?:(?:list|show)(?: me)? )?(?:all )?(?:my )?reminders", re.IGNORECASE)
_MAX_NAME_CHARS = 40


ReminderTime: TypeAlias = tuple[Mapping[str, str], str]
"""When to remind: the arguments for the tool `cron`, and the same in words."""


def parse_reminder(message: str, sent_at: datetime) -> Mapping[str, str] | None:
    """The `cron` arguments that a message asks for; None if the message matches no form.

    `sent_at` is in the sender's time zone.
    """
    text = " ".join(message.split()).rstrip(".!?")
    if _LIST_REQUEST.fullmatch(text):
        return {"action": "list"}
    for shape in _SHAPES:
        if (found := shape.fullmatch(text)) and (time := _reminder_time(found.groupdict(), sent_at)):
            what = found["what"]
            arguments, words = time
            name = f"{one_line(what, _MAX_NAME_CHARS)}, {words}"
            return {"action": "add", "name": name, "prompt": f"{REMINDER_PROMPT}{what}", **arguments}
    return None


def about_reminders(message: str) -> bool:
    """Whether a message seems to ask for a reminder."""
    return re.match(r"(please )?remind\b|every\b|.*\breminders?\b", message, re.IGNORECASE) is not None


def _reminder_time(found: Mapping[str, str | None], sent_at: datetime) -> ReminderTime | None:
    if unit := found.get("unit"):
        return _delayed(found.get("count") or "", unit.lower(), sent_at)
    clock = _clock(int(found["hour"] or 0), int(found["minute"] or 0), (found["half"] or "").lower())
    days = [day.lower() for each in ("before", "after") if (day := found.get(each))]
    if clock is None or len(days) > 1:
        return None
    words = " ".join((found["when"] or "").lower().split())
    day = days[0].removeprefix("on ") if days else ""
    if day.startswith("every "):
        return _recurring(day.removeprefix("every "), clock, words)
    at = _on(day, sent_at.replace(hour=clock[0], minute=clock[1], second=0, microsecond=0), sent_at)
    return {"schedule_type": "once", "run_at": f"{at:%Y-%m-%dT%H:%M}"}, words


def _delayed(count: str, unit: str, sent_at: datetime) -> ReminderTime:
    """Counted by the tool from the second the message was sent, which its timestamp does not tell."""
    number = int(count) if count.isdecimal() else 1
    length = {"min": 1, "minute": 1, "hour": 60, "day": 1440, "week": 10_080}[unit]
    at = sent_at.astimezone(UTC) + timedelta(minutes=number * length)
    words = f"at {at.astimezone(sent_at.tzinfo):%H:%M}"
    return {"schedule_type": "once", "run_at": f"in {number} {unit}{'s' * (number != 1)}"}, words


def _recurring(day: str, clock: tuple[int, int], words: str) -> ReminderTime | None:
    days = {"day": "*", "weekday": "1-5", **{name: str((number + 1) % 7) for number, name in enumerate(_WEEK)}}
    if day not in days:
        return None
    return {"schedule_type": "recurring", "cron_expr": f"{clock[1]} {clock[0]} * * {days[day]}"}, words


def _on(day: str, at: datetime, sent_at: datetime) -> datetime:
    """That time on the given day; without a day, or on a day of the week, its next occurrence."""
    if day in _WEEK:
        ahead = (_WEEK.index(day) - at.weekday()) % 7
        return at + timedelta(days=ahead if ahead or at > sent_at else 7)
    return at + timedelta(days=day == "tomorrow" or (not day and at <= sent_at))


def _clock(hour: int, minute: int, half: str) -> tuple[int, int] | None:
    if half and not 1 <= hour <= 12:
        return None
    hour = hour % 12 + 12 * (half == "pm") if half else hour
    return (hour, minute) if hour < 24 and minute < 60 else None


def describe_result(result: str) -> str:
    """The result of a `cron` call, worded for the user."""
    match json_or_text(result):
        case str(cut):  # to fit the prompt
            return cut
        case {"schedules": []}:
            return "You have no reminders."
        case {"schedules": list(listed), **rest}:
            more = [f"and {rest['more']} more"] if "more" in rest else []
            lines = [
                f"- {each['id']}: {each['name']} ({each['in_words']})" for each in listed if isinstance(each, dict)
            ]
            return "\n".join([*lines, *more, "", "`/schedules remove NUMBER` removes one."])
        case {"name": name, "next_run": at, "in": left, **rest}:
            unknown = " Your time zone is unknown, so I used UTC; set `owner.timezone` in `config.json`."
            return f"Noted: {name}. Next: {at}, in {left}.{unknown * ('note' in rest)}"
        case {"message": str(problem)}:
            return problem
        case _:
            return "Done."
