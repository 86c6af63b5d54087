"""Heartbeats: when a model is asked, its prompt, the meaning of its answer, and the status for people."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo

from pydantic import BaseModel, ConfigDict

from gateway.agent.loop import NO_ANSWER
from gateway.config.value_types import format_duration
from gateway.domain.health import HeartbeatOutcome
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.domain.work.tasks import is_quiet
from gateway.store.work.heartbeats import MAX_CONCERNS, Concern, ConcernKind, Pulse
from gateway.timetable.wording import moment

NOTHING_TO_REPORT = "heartbeat ok"
NO_MODEL = "no model is connected"
LONGEST_NAME = 80

_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)
_HEADING = re.compile(r"^ {0,3}#{1,6}([ \t].*)?$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？\n])(?<!:\n)(?<!:\n\n)")
_UNREADABLE = re.compile(r"\[(\S*HEARTBEAT\.md could not be read: .*)\]", re.DOTALL)


class Occasion(BaseModel):
    """The `input` of the task of a heartbeat."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    concerns: tuple[Concern, ...] = ()

    @property
    def label(self) -> Label:
        """The label of the least trusted concern."""
        return max((concern.label for concern in self.concerns), default=Label.OWNER)


def instructs(text: str) -> bool:
    """Whether HEARTBEAT.md could be read and has more than comments and headings."""
    rest = _HEADING.sub("", _COMMENT.sub("", text))
    return re.search(r"\w", rest) is not None and unreadable(text) is None


def unreadable(text: str) -> str | None:
    """Why HEARTBEAT.md could not be read, for people; None if it could."""
    match = _UNREADABLE.fullmatch(text)
    return match[1] if match else None


def heartbeat_prompt(concerns: Sequence[Concern], now: datetime, zone: str, name: str) -> str:
    """The prompt; `zone` is the IANA zone of the user called `name`."""
    lines = [f"This is a heartbeat: nobody wrote to you. It is {_minute(now, zone)}."]
    if concerns:
        noticed = (
            (_NOTICED[each.kind], one_line(each.what, LONGEST_NAME), _minute(each.at, zone)) for each in concerns
        )
        lines += [
            "Since the last one the gateway noticed:",
            *(f"- {text.format(what, at)}" for text, what, at in noticed),
        ]
    if len(concerns) >= MAX_CONCERNS:
        lines += ["- There may be more; only the oldest are listed."]
    lines += [
        f"Do what HEARTBEAT.md asks for and look after what was noticed. Your answer is sent to {name} as it is, so "
        f"write only what is worth their attention now. If nothing is, answer exactly this, "
        f"untranslated: {NOTHING_TO_REPORT}"
    ]
    return "\n".join(lines)


def outcome_of(answer: str) -> HeartbeatOutcome:
    """The outcome that an answer stands for."""
    if answer == NO_ANSWER:
        return HeartbeatOutcome.FAILED
    return HeartbeatOutcome.OK if is_quiet(answer, NOTHING_TO_REPORT) else HeartbeatOutcome.TOLD


def news_in(answer: str) -> str:
    """The answer as it is sent: without the phrase that some models end on although they have news."""
    ends = (found.start() for found in _SENTENCE_END.finditer(answer, max(0, len(answer) - 400)))
    # a fence closes with the news if the phrase stands behind it
    phrase = (at for at in ends if is_quiet(answer[at:], NOTHING_TO_REPORT) and answer.count("```", at) % 2 == 0)
    return answer[: next(phrase, None)].rstrip()


_NOTICED: Mapping[ConcernKind, str] = {
    "overdue": 'The schedule "{}" was due on {} and has not run.',
    "failed": '"{}" failed on {}.',
    "undelivered": "Something you said on {} on {} could not be delivered.",
    "doubtful": "Something you said on {} on {} may not have been delivered.",
    "unanswered": "A message on {} of {} has no answer yet.",
}


def _minute(at: datetime, zone: str) -> str:
    return moment(at.replace(second=0, microsecond=0), zone)


def heartbeat_status(
    pulse: Pulse, every: timedelta | None, due: datetime | None, stopped: str | None, now: datetime, zone: tzinfo | None
) -> str:
    """The status, for people; times are in `zone`, or in that of the machine."""

    def clock(at: datetime) -> str:
        local = at.astimezone(zone)
        return f"{local:%H:%M}" if local.date() == now.astimezone(zone).date() else f"{local:%a %H:%M}"

    if every is None:
        return "off"
    if stopped is not None:
        return f"stopped: {stopped}"
    words = [f"every {format_duration(every)}"]
    if pulse.outcome is not HeartbeatOutcome.WAITING:
        words.append(f"last {clock(pulse.at)} {_went(pulse.outcome, pulse.text)}")
    if due is not None:
        words.append(f"next {clock(due)}")
    beats, asked = (pulse.beats, pulse.asked) if pulse.day == now.date() else (0, 0)
    return f"{', '.join(words)}; {beats} beat{'s' * (beats != 1)} today, {asked} asked a model"


def _went(outcome: HeartbeatOutcome, text: str) -> str:
    if outcome is HeartbeatOutcome.RUNNING:
        return "is running"
    explained = outcome in {HeartbeatOutcome.IDLE, HeartbeatOutcome.SKIPPED, HeartbeatOutcome.FAILED}
    return f"{outcome.value} ({text})" if explained else outcome.value
