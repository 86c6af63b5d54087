"""Compaction: the part of a conversation that a summary replaces, the prompt for it, and the reading of the reply."""

import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import TypeAlias, assert_never

from gateway.agent.conversation.context import stamped
from gateway.agent.conversation.fit import MAX_MESSAGE_TOKENS, cut, even_out, fit
from gateway.domain.conversation.model import Prompt, SystemMessage, UserMessage
from gateway.domain.conversation.transcript import (
    AssistantText,
    Entry,
    Notice,
    Summary,
    ToolIntent,
    ToolResult,
    UserText,
)
from gateway.domain.ids import MessageId, TaskId
from gateway.domain.json import json_or_text
from gateway.domain.text.tokens import estimate
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import states
from gateway.store.transcript.messages import MessageRow

LONGEST_SUMMARY = 2_000
SHORTEST_LIMIT = 200
BEGINNING_TOKENS = 600
"""Tokens shown of a message that is so long that it became a file."""
ENVELOPE_TOKENS = 12
"""Tokens around a text in a prompt: its stamp, the name of a call."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The rows that a summary replaces, oldest first, and the `previous` summary, which it continues."""

    previous: MessageRow | None
    covered: tuple[MessageRow, ...]

    @property
    def spoken(self) -> tuple[MessageId, ...]:
        """The messages of people and agent among them."""
        return tuple(row.id for row in self.covered if row.kind in ("user", "assistant"))

    def without(self, messages: Set[MessageId], facts: Collection[Set[str]]) -> "Cut":
        """The rows for a summary without these messages, and without rows or lines of before that state such a fact.

        A fact is given by its words.
        """
        covered = tuple(row for row in self.covered if row.id not in messages and not _states(row.text, facts))
        if self.previous is None or not facts:
            return Cut(self.previous, covered)
        lines = [line for line in self.previous.text.splitlines() if not _states(line, facts)]
        return Cut(replace(self.previous, text="\n".join(lines)), covered)

    @property
    def last(self) -> int:
        """The last place in the transcript that the summary covers."""
        return self.covered[-1].seq or 0


def _states(text: str, facts: Collection[Set[str]]) -> bool:
    said = set(lexemes(text)) if facts else set[str]()
    return any(states(said, fact) for fact in facts)


def tokens_of(rows: Sequence[MessageRow]) -> int:
    """The tokens of the rows in a prompt, without notices, each text up to its limit."""
    return sum(_shown(row) + ENVELOPE_TOKENS for row in rows if row.kind != "notice")


def longest_summary(at: int) -> int:
    """The most tokens of a summary in a conversation that is compacted `at` this many."""
    return min(LONGEST_SUMMARY, max(SHORTEST_LIMIT, at // 4))


def cut_of(rows: Sequence[MessageRow], task: TaskId, keep: int) -> Cut | None:
    """Where to cut a transcript; None if nothing can be replaced.

    Open rows stay, and those that the task has stored in its current turn. Before them stay the latest answer, and as
    many whole rounds of question and answer as fit into `keep` tokens. A call stays with its result.
    """
    previous = next((row for row in rows if row.kind == "summary"), None)
    body = [row for row in rows if row.kind != "summary"]
    past = body[: _turn_starts(body, task)]
    start = _with_results(body, _kept_from(past, keep))
    return Cut(previous, tuple(body[:start])) if any(row.kind != "notice" for row in body[:start]) else None


def turn_after(rows: Sequence[MessageRow], task: TaskId) -> int:
    """The place after which a task's current turn begins; one task may have several turns."""
    ends = (row.seq or 0 for row in rows if row.task_id == task and row.ends_turn)
    return max(ends, default=next((row.covers or 0 for row in rows if row.kind == "summary"), 0))


def own_turn(rows: Sequence[MessageRow], task: TaskId) -> list[MessageRow]:
    """The rows of a task's current turn."""
    after = turn_after(rows, task)
    return [row for row in rows if row.task_id == task and (row.seq or 0) > after]


def _shown(row: MessageRow) -> int:
    if (size := row.size) <= MAX_MESSAGE_TOKENS:
        return size
    return BEGINNING_TOKENS if row.kind == "user" else MAX_MESSAGE_TOKENS


def _turn_starts(body: Sequence[MessageRow], task: TaskId) -> int:
    running = {row.id for row in own_turn(body, task)}
    start = next((place for place, row in enumerate(body) if row.open or row.id in running), len(body))
    while start < len(body) and start and body[start - 1].handed_back:
        start -= 1
    return start


def _kept_from(past: Sequence[MessageRow], keep: int) -> int:
    """The first place that stays: the oldest round that fits into `keep`, or the latest answer."""
    start = _latest_answer(past)
    for place in range(len(past) - 1, -1, -1):
        keep -= tokens_of(past[place : place + 1])
        if keep < 0:
            break
        if _begins_round(past, place):
            start = min(start, place)
    return start


def _latest_answer(past: Sequence[MessageRow]) -> int:
    """The place of the latest answer, or the end if a run was given up after it."""
    for place in range(len(past) - 1, -1, -1):
        row = past[place]
        if row.kind == "assistant" and row.final:
            return place
        if row.kind in {"tool_intent", "tool_result"}:
            break
    return len(past)


def _begins_round(past: Sequence[MessageRow], place: int) -> bool:
    return past[place].kind == "user" and (place == 0 or past[place - 1].kind != "user")


def _with_results(body: Sequence[MessageRow], start: int) -> int:
    """`start`, moved back so that no call loses its result."""
    intents = {(row.task_id, row.ordinal): place for place, row in enumerate(body) if row.kind == "tool_intent"}
    for place in range(len(body) - 1, -1, -1):
        row = body[place]
        if place >= start and row.kind == "tool_result":
            start = min(start, intents.get((row.task_id, row.ordinal), start))
    return start


GOAL, DECISIONS, PEOPLE, THREADS, FILES, NEXT, LASTING = TITLES = (
    "Goal",
    "Decisions",
    "Facts about people",
    "Open threads",
    "Files",
    "Next steps",
    "Worth remembering",
)

Sections: TypeAlias = Mapping[str, str]
"""The text under each title, without empty ones."""

LONGEST_LINE = 100
SHORTEST_LINE = 15
LONGEST_RECAP = 150
"""Tokens of each section in a recap."""
FEWEST_SECTIONS = 3
MOST_FACTS = 20
MOST_FILES = 30
RECENT_QUESTIONS = 5
MOST_THREADS = 8
_RECAP = (("", GOAL), ("Decided: ", DECISIONS), ("Open: ", THREADS))
_NOTHING = {"", "none", "nothing", "na"}
_HEADING = re.compile(rf"\s*(?:#+\s*\**|\*\*)({'|'.join(TITLES)}):?\**:?\s*", re.IGNORECASE)
_BULLET = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+(.+)")
_TITLE = {title.lower(): title for title in TITLES}


def read_summary(reply: str) -> Sections | None:
    """The sections of a model's reply; None if it isn't a summary."""
    sections = _split(reply)
    return filled if len(sections) >= FEWEST_SECTIONS and (filled := _filled(sections)).get(GOAL) else None


def written_summary(sections: Sections, limit: int) -> str:
    """The summary as stored, at most `limit` tokens; the longest sections are cut first."""
    there = [title for title in TITLES if sections.get(title)]
    room = limit - sum(estimate(f"\n\n## {title}\n") + 1 for title in there)
    bodies = even_out([sections[title] for title in there], room, estimate)
    text = "\n\n".join(f"## {title}\n{body}" for title, body in zip(there, bodies, strict=True) if body)
    return cut(text, limit, estimate)


def lasting_facts(sections: Sections) -> tuple[str, ...]:
    """The facts to remember permanently."""
    lines = [found[1] for line in sections.get(LASTING, "").splitlines() if (found := _BULLET.fullmatch(line))]
    facts = (_one_line(line, LONGEST_LINE) for line in lines if not _is_nothing(line))
    return tuple(dict.fromkeys(facts))[:MOST_FACTS]


def goal_of(sections: Sections) -> str:
    """The goal of the conversation, in a line or two."""
    return _one_line(sections.get(GOAL, ""), LONGEST_LINE)


def recap_of(sections: Sections) -> str:
    """Goal, decisions and open threads in a paragraph, for other conversations."""
    pieces = ((name, _one_line(sections.get(title, ""), LONGEST_RECAP)) for name, title in _RECAP)
    return " ".join(f"{name}{text}" for name, text in pieces if text)


def without_model(what: Cut, limit: int) -> Sections:
    """A summary without a model: the earlier summary, the last questions, files, the last answer."""
    longest = max(SHORTEST_LINE, limit // 25)
    before = _filled(_split(what.previous.text)) if what.previous else {}
    asked = [_one_line(row.text, longest) for row in what.covered if row.kind == "user" and not row.withdrawn]
    answers = [row.text for row in what.covered if row.kind == "assistant"]
    last = [f"The latest answer in this part began: {_one_line(text, longest)}" for text in answers[-1:]]
    goal = before.get(GOAL) or next(iter(asked), "") or "Not known."
    further = [f"- Asked: {text}" for text in dict.fromkeys(asked) if text != goal]
    threads = [*before.get(THREADS, "").splitlines(), *further[-RECENT_QUESTIONS:]]
    files = dict.fromkeys([*before.get(FILES, "").splitlines(), *_files(what.covered)])
    return before | {
        GOAL: goal,
        THREADS: "\n".join(threads[-MOST_THREADS:]),
        FILES: "\n".join(list(files)[-MOST_FILES:]),
        NEXT: "".join(last) or before.get(NEXT, ""),
    }


def _split(text: str) -> Sections:
    """The text under each heading, "" for an empty one."""
    found: dict[str, list[str]] = {}
    body: list[str] = []
    for line in text.splitlines():
        if heading := _HEADING.fullmatch(line):
            body = found.setdefault(_TITLE[heading[1].lower()], [])
        else:
            body.append(line)
    return {title: "\n".join(lines).strip() for title, lines in found.items()}


def _filled(sections: Sections) -> dict[str, str]:
    return {title: text for title, text in sections.items() if not _is_nothing(text)}


def _is_nothing(text: str) -> bool:
    return re.sub(r"\W+", "", text).lower() in _NOTHING


def _files(rows: Sequence[MessageRow]) -> list[str]:
    """Files that people sent and didn't delete, and paths that tools were called with."""
    kept = (file for row in rows if row.withdrawn != "deleted" for file in row.attached if file.path)
    sent = [f"{file.path}: {file.name}; {file.description}" for file in kept]
    calls = [row.text for row in rows if row.kind == "tool_intent" and "path" in row.text]
    paths = [*sent, *(path for text in calls for path in _paths(text))]
    return [f"- {_one_line(path, LONGEST_LINE)}" for path in paths]


def _paths(arguments: str) -> list[str]:
    named = json_or_text(arguments)
    fields = named.items() if isinstance(named, dict) else ()
    return [value for key, value in fields if key.endswith("path") and isinstance(value, str) and value.strip()]


def _one_line(text: str, limit: int) -> str:
    """The beginning of a text on one line, so that it can't pass for a heading."""
    line = " ".join(text[: limit * 8].split())
    short = line
    while estimate(short) > limit:
        short = short[: len(short) * 4 // 5]
    return line if short == line and len(text) <= limit * 8 else f"{short}…"


FROM_MEMORY = frozenset({"memory_search", "memory_get"})
"""Tools whose results are memories already, from which none is learned again."""
LONGEST_TEXT = 4_000
LONGEST_CALL = 500
SHORTEST_RECORD_LINE = 40
MARKER_TOKENS = 60


@cache
def _summary_instructions() -> str:
    return Path(__file__).with_name("summary.md").read_text().strip()


def summary_prompt(what: Cut, budget: int, limit: int) -> Prompt:
    """The prompt for a summary of `limit` tokens, at most `budget` (≥ 200) itself; the longest texts are cut first."""
    system = _summary_instructions().format(words=limit * 6 // 10)
    room = budget - estimate(system) - MARKER_TOKENS
    rows = filter(None, (what.previous, *what.covered))
    told = (row for row in rows if row.kind != "tool_result" or row.tool not in FROM_MEMORY)
    pieces = [line for row in told if (line := _record_of(row.entry))]
    pieces = pieces[:1] + pieces[1:][-max(1, room // SHORTEST_RECORD_LINE) :]
    # indented, so that no text can pass for another piece
    pieces = ["\n  ".join(line.splitlines()) for line in pieces]
    record = "\n\n".join(line for line in even_out(pieces, room - 2 * len(pieces), estimate) if line)
    marker = next(marker for n in count(1) if (marker := f"=== record {n} ===") not in record)
    ask = UserMessage(f"{marker}\n{record}\n{marker}\nWrite the summary of this record.")
    return Prompt(fit((SystemMessage(system), ask), budget, estimate, longest=budget))


def _record_of(entry: Entry) -> str:
    """One piece of the record; "" for notices of the gateway, which are not part of the conversation."""
    match entry:
        case UserText(text):
            return f"User {stamped(replace(entry, text=cut(text, LONGEST_TEXT, estimate)))}"
        case AssistantText(text):
            return f"Agent: {cut(text, LONGEST_TEXT, estimate)}"
        case ToolIntent(call):
            return f"Agent calls {call.name}: {cut(call.arguments, LONGEST_CALL, estimate)}"
        case ToolResult(_, text):
            return f"Result: {cut(text, LONGEST_CALL, estimate)}"
        case Summary(text):
            return f"Earlier summary:\n{text}"
        case Notice():
            return ""
        case unreachable:
            assert_never(unreachable)
