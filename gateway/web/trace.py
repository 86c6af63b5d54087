"""The trace of a task or a turn: its steps as bars on one time axis, and what they said, for when they are opened."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from gateway.agent.limits import dollars
from gateway.domain.conversation.diff import legible
from gateway.domain.conversation.model import Thought
from gateway.domain.principals import Label
from gateway.domain.text.texts import compact
from gateway.store.transcript.messages import MessageRow
from gateway.store.work.steps import StepRow

LONGEST = 20_000
"""Characters of a text."""
TITLES = {"tool_intent": "Arguments", "tool_result": "Result"}


@dataclass(frozen=True, slots=True)
class Span:
    """A step as a bar: `start` and `width` are percents of the axis, `offset` is its beginning in seconds."""

    row: StepRow
    start: float
    width: float
    offset: str
    about: str


@dataclass(frozen=True, slots=True)
class Content:
    """A text that a step refers to, and how far it is trusted; None: as its run."""

    title: str
    text: str
    label: Label | None


def spans(rows: Sequence[StepRow], begin: datetime) -> list[Span]:
    """The steps on an axis from the beginning of the first to the end of the last; offsets count from `begin`."""
    if not rows:
        return []
    first = min(map(_began, rows))
    length = max((max(row.created_at for row in rows) - first).total_seconds(), 0.001)
    return [_span(row, first, length, begin) for row in rows]


def seconds(value: float) -> str:
    """A time in words: 380 ms, 1.2 s, 3 min 4 s, 2 h 5 min."""
    if value < 60:
        return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"
    minutes, hours = value // 60, value // 3600
    return f"{hours:,.0f} h {minutes % 60:.0f} min" if hours else f"{minutes:.0f} min {value % 60:.0f} s"


def step_words(row: StepRow) -> str:
    """The time, cost and tokens of a step; empty if it had none."""
    took = seconds(row.latency_ms / 1000) if row.latency_ms else ""
    return " · ".join(filter(None, (took, *(_cost(row) if row.kind == "model" else ()))))


def contents(rows: Sequence[MessageRow], thought: Thought | None) -> list[Content]:
    """The thought and words of a model, or the arguments of a call and its result."""
    thinking = [Content("Thinking", legible(clipped(thought.text)), None)] if thought and thought.text else []
    return thinking + [Content(TITLES.get(row.kind, "Text"), _shown(row.text), row.label) for row in rows if row.text]


def clipped(text: str) -> str:
    """The beginning of a text that is too long to show."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … (longer)"


def _began(row: StepRow) -> datetime:
    return row.created_at - timedelta(milliseconds=row.latency_ms)


def _span(row: StepRow, first: datetime, length: float, begin: datetime) -> Span:
    start = min(100 * (_began(row) - first).total_seconds() / length, 99.5)
    width = max(min(row.latency_ms / 10 / length, 100 - start), 0.5)
    offset = seconds(max((_began(row) - begin).total_seconds(), 0))
    return Span(row, round(start, 2), round(width, 2), offset, step_words(row))


def _cost(row: StepRow) -> tuple[str, ...]:
    thinking = f"{compact(row.tokens_thinking)} thinking" if row.tokens_thinking else ""
    tokens = f"{compact(row.tokens_in)} tokens in, {compact(row.tokens_out)} out"
    return dollars(row.cost_usd), ", ".join(filter(None, (tokens, thinking)))


def _shown(text: str) -> str:
    """A text for people; JSON on several lines."""
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    return legible(clipped(text))
