"""Titles of conversations, by rule: of what was said first, or of a summary once there is one."""

import re

from gateway.domain.text.texts import one_line

LONGEST = 60
UNTITLED = "Untitled"

_MARKS = re.compile(r"^(?:\[Forwarded from .*|\(Instructions from the client\))$", re.MULTILINE)
_QUOTES = re.compile(r"^>.*$", re.MULTILINE)
_LEAD = re.compile(r"^(?:[#*\-+>\s\"'“„]|\d+[.)]\s)+")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s")
_OF_THE_USER = re.compile(
    r"^(?:the )?user (?:wants|wanted|asks|asked|would like|needs|needed)(?: the agent)?(?: to| for| about)? ", re.I
)


def title(asked: str, summary: str = "", file: str = "") -> str:
    """The first sentence of the summary, else of the first message's own words, else the name of its file."""
    told, said = _OF_THE_USER.sub("", _first(summary)), _MARKS.sub("", asked)
    return clipped(told[:1].upper() + told[1:] or _first(_QUOTES.sub("", said)) or _first(said) or file) or UNTITLED


def clipped(words: str, longest: int = LONGEST) -> str:
    """In one line, cut between two words."""
    line = one_line(words, longest + 1)
    if len(line) <= longest:
        return line
    return f"{line[:longest].rsplit(' ', 1)[0].rstrip(' ,;:')}…"


def _first(text: str) -> str:
    lines = (_LEAD.sub("", line).strip() for line in text.splitlines())
    return _SENTENCE.split(next(filter(None, lines), ""), 1)[0].rstrip(".。 ")
