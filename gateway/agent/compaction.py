"""What of a conversation a summary may stand for: decided from the rows alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.agent.fit import MAX_MESSAGE_TOKENS
from gateway.domain.ids import MessageId, TaskId
from gateway.store.transcript.messages import MessageRow

LONGEST_SUMMARY = 2_000
SHORTEST_LIMIT = 200
BEGINNING = 600
"""Tokens that are shown of what a person wrote at such length that it became a file."""
ENVELOPE = 12
"""Tokens of what stands around a text in a prompt: its stamp, the name of a call."""


@dataclass(frozen=True, slots=True)
class Cut:
    """`covered` is what the summary is to stand for, oldest first; `previous` is the summary it carries on."""

    previous: MessageRow | None
    covered: tuple[MessageRow, ...]

    @property
    def spoken(self) -> tuple[MessageId, ...]:
        """Who said what in it, without what tools did."""
        return tuple(row.id for row in self.covered if row.kind in ("user", "assistant"))

    @property
    def last(self) -> int:
        """The last place of the transcript the summary stands for."""
        return self.covered[-1].seq or 0


def tokens_of(rows: Sequence[MessageRow]) -> int:
    """What the rows take of a prompt: the model is shown no notices, and no text beyond a bound."""
    return sum(_shown(row) + ENVELOPE for row in rows if row.kind != "notice")


def longest_summary(at: int) -> int:
    """Tokens a summary may have in a conversation that is compacted `at` so many."""
    return min(LONGEST_SUMMARY, max(SHORTEST_LIMIT, at // 4))


def cut_of(rows: Sequence[MessageRow], task: TaskId, keep: int) -> Cut | None:
    """Where to cut a transcript; None if nothing can go.

    What is open stays, and so does all that the task has stored for the turn it is in; before that the latest answer,
    and as many whole rounds of question and answer as fit into `keep` tokens. A call and its result stay together.
    """
    previous = next((row for row in rows if row.kind == "summary"), None)
    body = [row for row in rows if row.kind != "summary"]
    past = body[: _turn_starts(body, task)]
    start = _together(body, _kept_from(past, keep))
    if not any(row.kind != "notice" for row in body[:start]):
        return None
    return Cut(previous, tuple(body[:start]))


def turn_after(rows: Sequence[MessageRow], task: TaskId) -> int:
    """The place behind which a task has stored for the turn it is in: it may answer several times, turn after turn."""
    ends = (row.seq or 0 for row in rows if row.task_id == task and row.ends_turn)
    return max(ends, default=next((row.covers or 0 for row in rows if row.kind == "summary"), 0))


def own_turn(rows: Sequence[MessageRow], task: TaskId) -> list[MessageRow]:
    """What a task has stored for the turn it is in."""
    after = turn_after(rows, task)
    return [row for row in rows if row.task_id == task and (row.seq or 0) > after]


def _shown(row: MessageRow) -> int:
    if row.kind == "user" and row.size > MAX_MESSAGE_TOKENS:
        return BEGINNING
    return min(row.size, MAX_MESSAGE_TOKENS)


def _turn_starts(body: Sequence[MessageRow], task: TaskId) -> int:
    running = {row.id for row in own_turn(body, task)}
    start = next((place for place, row in enumerate(body) if row.open or row.id in running), len(body))
    while start < len(body) and start and body[start - 1].handed_back:
        start -= 1
    return start


def _kept_from(past: Sequence[MessageRow], keep: int) -> int:
    """The first place that stays: the oldest round that fits into `keep`, else the latest answer."""
    start = _latest_answer(past)
    for place in range(len(past) - 1, -1, -1):
        keep -= tokens_of(past[place : place + 1])
        if keep < 0:
            break
        if _begins_round(past, place):
            start = min(start, place)
    return start


def _latest_answer(past: Sequence[MessageRow]) -> int:
    """Its place, or the end: an answer behind which a run was given up goes with what that run has left."""
    for place in range(len(past) - 1, -1, -1):
        row = past[place]
        if row.kind == "assistant" and row.final:
            return place
        if row.kind in {"tool_intent", "tool_result"}:
            break
    return len(past)


def _begins_round(past: Sequence[MessageRow], place: int) -> bool:
    return past[place].kind == "user" and (place == 0 or past[place - 1].kind != "user")


def _together(body: Sequence[MessageRow], start: int) -> int:
    """`start`, or further back where a call would lose its result."""
    intents = {(row.task_id, row.ordinal): place for place, row in enumerate(body) if row.kind == "tool_intent"}
    for place in range(len(body) - 1, -1, -1):
        row = body[place]
        if place >= start and row.kind == "tool_result":
            start = min(start, intents.get((row.task_id, row.ordinal), start))
    return start
