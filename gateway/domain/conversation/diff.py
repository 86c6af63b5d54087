"""Shows a change to the person who decides on it; no character in it can pass for another."""

import difflib
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from operator import eq

from gateway.domain.conversation.tools import ToolFailed
from gateway.domain.json import JsonObject, text_or_json

LONGEST = 60_000
"""Characters, before and after together, of which a difference is made."""
CHAT_LINES, CHAT_CHARS = 60, 3_000
"""Characters of a difference that fit into one message on any messenger."""

_LINES = 400
_WIDE = re.compile(" {16,}")
_UNSEEN = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x2800, 0x3164, 0xFFA0, *range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0)))
)


def difference(name: str, before: str, after: str) -> str:
    """The changed lines, with `-` and `+`, and two lines around them; in whole blocks where the texts have many lines.

    Raises `ToolFailed` if the texts are too long.
    """
    if len(before) + len(after) > LONGEST:
        raise ToolFailed.own("too_long", "A person has to approve this change, and it is too long to show.")
    old, new = (text.split("\n") if text else [] for text in (before, after))
    if max(len(old), len(new)) <= _LINES:
        return "\n".join(difflib.unified_diff(old, new, name, name, n=2, lineterm="")) or f"{name}: binary content only"
    first = _shared(old, new)
    last = min(_shared(old[::-1], new[::-1]), min(len(old), len(new)) - first)
    gone, come = old[first : len(old) - last], new[first : len(new) - last]
    return "\n".join(
        [f"{name}, from line {first + 1}:", *(f"-{line}" for line in gone), *(f"+{line}" for line in come)]
    )


def written_out(tool: str, arguments: JsonObject) -> str:
    """The exact call, an argument a line. Raises `ToolFailed` if it is too long."""
    lines = [f"{name}: {text_or_json(value)}" for name, value in arguments.items()]
    if sum(map(len, lines)) > LONGEST:
        raise ToolFailed.own("too_long", "A person has to approve this call, and it is too long to show.")
    return "\n".join([tool, *lines])


def _shared(old: Sequence[str], new: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(bool, map(eq, old, new)))


@lru_cache(maxsize=32)
def legible(text: str) -> str:
    """The text with everything visible: what hides, reorders or ends the text around it is spelt out."""
    return "\n".join(map(_legible, text.split("\n")))


def for_chat(text: str) -> tuple[str, int]:
    """As much of it, legible, as a message shows, and how many lines are left out."""
    lines, kept = text.split("\n"), list[str]()
    for line in lines[:CHAT_LINES]:
        kept.append(_legible(line[: CHAT_CHARS + 1]))
        if sum(map(len, kept)) + len(kept) > CHAT_CHARS or len(line) > CHAT_CHARS:
            kept.pop()
            break
    return "\n".join(kept), len(lines) - len(kept)


def _legible(line: str) -> str:
    return _WIDE.sub(lambda gap: f"⟨{len(gap.group())} spaces⟩", "".join(map(_visible, line.replace("\t", "    "))))


def _visible(char: str) -> str:
    if char == "`":
        return "ˋ"
    return char if char.isprintable() and char not in _UNSEEN else f"⟨U+{ord(char):04X}⟩"
