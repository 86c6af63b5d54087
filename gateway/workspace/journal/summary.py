"""What a closed conversation was about, in one or two lines, and the list of all of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

LINE = 160


@dataclass(frozen=True, slots=True)
class IndexLine:
    """One filed conversation; `at` is the second that names its file."""

    at: datetime
    channel: str
    summary: str


def summarise(asked: str, answered: str, messages: int) -> str:
    """One line for the first question, one for the last answer; the same for the same conversation."""
    if not messages:
        return "Nothing was said."
    question = f"{_clipped(asked) or 'No question'} ({messages} message{'s' * (messages != 1)})"
    return f"{question}\n→ {_clipped(answered)}" if answered.strip() else question


def render_index(lines: Sequence[IndexLine]) -> str:
    """`memory/INDEX.md`, the newest last; the links lead to files in the same folder."""
    listed = "".join(map(render_line, sorted(lines, key=lambda line: line.at)))
    return f"# Conversations\n\nWhat was talked about, the newest last.\n\n{listed}"


def render_line(line: IndexLine) -> str:
    """One conversation, to be added at the end."""
    first, *rest = [_inert(text) for text in line.summary.splitlines() if text.strip()] or ["No summary."]
    channel = f" · {_inert(line.channel)}" if line.channel else ""
    more = "".join(f"  {text}\n" for text in rest[:1])
    return f"- [{line.at:%Y-%m-%d %H:%M}]({line.at:%Y%m%d%H%M%S}.md){channel} · {first}\n{more}"


def _clipped(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= LINE else f"{words[: LINE - 1].rstrip()}…"


def _inert(text: str) -> str:
    """Words of a conversation as words: no markup of theirs works in the list."""
    words = re.sub(r"([\\`*_\[\]<>#])", r"\\\1", " ".join(text.split()))
    return re.sub(r"^(\d*)([-+.)])", r"\1\\\2", words)
