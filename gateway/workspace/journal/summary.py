"""What a closed conversation was about, in one or two lines, and the list of all of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

LINE = 160


@dataclass(frozen=True, slots=True)
class Outline:
    """What is known of a conversation without a model: its first question, its last answer, how much was said."""

    asked: str
    answered: str
    messages: int


@dataclass(frozen=True, slots=True)
class IndexLine:
    """One filed conversation."""

    path: str
    at: datetime
    channel: str
    summary: str


def summarise(outline: Outline) -> str:
    """One line for what was asked, one for how it ended; the same for the same conversation."""
    if not outline.messages:
        return "Nothing was said."
    count = f"{outline.messages} message{'s' * (outline.messages != 1)}"
    asked = f"{_clipped(outline.asked) or 'No question'} ({count})"
    answered = _clipped(outline.answered)
    return f"{asked}\n→ {answered}" if answered else asked


def render_index(lines: Sequence[IndexLine]) -> str:
    """`memory/INDEX.md`; the links lead to files in the same folder."""
    listed = "".join(_item(line) for line in lines) or "Nothing yet.\n"
    return f"# Conversations\n\nWhat was talked about, the newest first.\n\n{listed}"


def _item(line: IndexLine) -> str:
    name = line.path.rpartition("/")[2]
    link = f"[{line.at.astimezone(UTC):%Y-%m-%d %H:%M}]({name})"
    first, *rest = [_inert(text) for text in line.summary.splitlines() if text.strip()] or ["No summary."]
    channel = f" · {_inert(line.channel)}" if line.channel else ""
    more = "".join(f"  {text}\n" for text in rest[:1])
    return f"- {link}{channel} · {first}\n{more}"


def _clipped(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= LINE else f"{words[: LINE - 1].rstrip()}…"


def _inert(text: str) -> str:
    """Words of a conversation as words: no markup of theirs works in the list."""
    words = re.sub(r"([\\`*_\[\]<>#])", r"\\\1", " ".join(text.split()))
    return re.sub(r"^(\d*)([-+.)])", r"\1\\\2", words)
