"""A summary of a conversation: what is kept of a model's reply, and how to do without a model."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from gateway.agent.compaction import Cut
from gateway.agent.fit import cut, even_out
from gateway.domain.text.tokens import estimate
from gateway.store.transcript.messages import MessageRow

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
"""The text under each title; one without anything to say is not in it."""

LONGEST_LINE = 100
SHORTEST_LINE = 15
LONGEST_RECAP = 150
"""Tokens of each section in a recap."""
FEWEST = 3
MOST_FACTS = 20
MOST_FILES = 30
RECENT = 5
MOST_THREADS = 8
_RECAP = (("", GOAL), ("Decided: ", DECISIONS), ("Open: ", THREADS))
_NOTHING = {"", "none", "nothing", "na"}
_HEADING = re.compile(rf"\s*(?:#+\s*\**|\*\*)({'|'.join(TITLES)}):?\**:?\s*", re.IGNORECASE)
_BULLET = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+(.+)")
_TITLE = {title.lower(): title for title in TITLES}


def read(reply: str) -> Sections | None:
    """The sections of a model's reply; None if it is no summary."""
    found = _split(reply)
    return _filled(found) if len(found) >= FEWEST and _filled(found).get(GOAL) else None


def written(sections: Sections, limit: int) -> str:
    """The summary as it is stored, in at most `limit` tokens: the longest sections are cut first."""
    there = [title for title in TITLES if sections.get(title)]
    room = limit - sum(estimate(f"\n\n## {title}\n") + 1 for title in there)
    bodies = even_out([sections[title] for title in there], room, estimate)
    text = "\n\n".join(f"## {title}\n{body}" for title, body in zip(there, bodies, strict=True) if body)
    return cut(text, limit, estimate)


def lasting(sections: Sections) -> tuple[str, ...]:
    """The facts to remember for ever, one by one."""
    lines = [found[1] for line in sections.get(LASTING, "").splitlines() if (found := _BULLET.fullmatch(line))]
    facts = (_one_line(line, LONGEST_LINE) for line in lines if not _is_nothing(line))
    return tuple(dict.fromkeys(facts))[:MOST_FACTS]


def goal(sections: Sections) -> str:
    """What it was about, in a line or two."""
    return _one_line(sections.get(GOAL, ""), LONGEST_LINE)


def recap(sections: Sections) -> str:
    """In a paragraph what it was about, what was decided and what is open: a conversation as others remember it."""
    told = ((name, _one_line(sections.get(title, ""), LONGEST_RECAP)) for name, title in _RECAP)
    return " ".join(f"{name}{text}" for name, text in told if text)


def without_model(what: Cut, limit: int) -> Sections:
    """What can be told without understanding: the earlier summary, what people wrote last, files, the last answer."""
    longest = max(SHORTEST_LINE, limit // 25)
    before = _filled(_split(what.previous.text)) if what.previous else {}
    asked = [_one_line(row.text, longest) for row in what.covered if row.kind == "user"]
    answers = [row.text for row in what.covered if row.kind == "assistant"]
    last = [f"The latest answer in this part began: {_one_line(text, longest)}" for text in answers[-1:]]
    threads = [*before.get(THREADS, "").splitlines(), *(f"- Asked: {text}" for text in asked[-RECENT:])]
    files = dict.fromkeys([*before.get(FILES, "").splitlines(), *_files(what.covered)])
    return before | {
        GOAL: before.get(GOAL) or next(iter(asked), "") or "Not known.",
        THREADS: "\n".join(threads[-MOST_THREADS:]),
        FILES: "\n".join(list(files)[-MOST_FILES:]),
        NEXT: "".join(last) or before.get(NEXT, ""),
    }


def _split(text: str) -> Sections:
    """The text under each heading that is there, also where there is none."""
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
    """Files that people sent, and paths that tools were called with."""
    sent = [f"{file.path}: {file.name}; {file.description}" for row in rows for file in row.attached if file.path]
    calls = [row.text for row in rows if row.kind == "tool_intent" and "path" in row.text]
    paths = [*sent, *(path for text in calls for path in _paths(text))]
    return [f"- {_one_line(path, LONGEST_LINE)}" for path in paths]


def _paths(arguments: str) -> list[str]:
    try:
        named = json.loads(arguments)
    except (ValueError, RecursionError):
        return []
    fields = named.items() if isinstance(named, dict) else ()
    return [value for key, value in fields if key.endswith("path") and isinstance(value, str) and value.strip()]


def _one_line(text: str, limit: int) -> str:
    """The beginning of a text, unable to pass for a heading."""
    line = " ".join(text[: limit * 8].split())
    short = line
    while estimate(short) > limit:
        short = short[: len(short) * 4 // 5]
    return line if short == line and len(text) <= limit * 8 else f"{short}…"
