"""Text from elsewhere: made safe to store and show, given a title, and searched for a person's own words."""

import json
import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import product

SHORTEST_QUOTE = 3


def storable(text: str) -> str:
    """The text as databases and providers accept it: without NUL, with lone surrogates replaced by question marks."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def quotes_whole(text: str, value: str) -> bool:
    """Whether the value stands in the text for itself: `a@b.c` does not in `a@b.com`, nor `x.org` in `x.org/path`.

    Of a value that is short, or blank, nothing can be said.
    """
    if len(value.strip()) < SHORTEST_QUOTE:
        return False
    return (
        re.search(rf"(?<![^\s\"'“„(<\[,;:]){re.escape(value.strip())}(?![^\s\"'”)>\],;:.!?]|[.!?:]\S)", text)
        is not None
    )


def one_line(text: str, limit: int) -> str:
    """The text for use in a line: at most `limit` characters, without line breaks, markup or invisible ones."""
    seen = (" " if unicodedata.category(char) in _UNSEEN or char in "`" else char for char in text[: limit * 8])
    return " ".join("".join(seen).split())[:limit]


def printable(text: str, keep: str = "\n\t") -> str:
    """The text for a terminal: controls, bidirectional marks and invisible characters, except `keep`, as escapes."""
    if text.isprintable():
        return text
    kept = f"{keep}{_JOINERS}"
    shown = (char if char in kept or unicodedata.category(char) not in _UNSEEN else _escaped(char) for char in text)
    return "".join(shown)


def json_text(value: object, indent: int | None = None) -> str:
    """`value` as JSON; in plain ASCII if it holds anything that a terminal would obey."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if printable(text) == text else json.dumps(value, indent=indent)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Persian words and many emoji are made with them."""


class GrowingText:
    """Text that comes in many pieces, kept as one block: a hundred thousand small strings leave memory in shreds."""

    def __init__(self) -> None:
        self._written = bytearray()

    def add(self, piece: str) -> None:
        """Write it at the end."""
        self._written += piece.encode(errors="surrogatepass")

    def __str__(self) -> str:
        return self._written.decode(errors="surrogatepass")


MAX_TITLE = 60
UNTITLED = "Untitled"

_FORWARD_MARKS = re.compile(r"^(?:\[Forwarded from .*|\(Instructions from the client\))$", re.MULTILINE)
_QUOTES = re.compile(r"^>.*$", re.MULTILINE)
_LEAD = re.compile(r"^(?:[#*\-+>\s\"'“„]|\d+[.)]\s)+")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s")
_OF_THE_USER = re.compile(
    r"^(?:the )?user (?:wants|wanted|asks|asked|would like|needs|needed)(?: the agent)?(?: to| for| about)? ", re.I
)


def title(asked: str, summary: str = "", file: str = "") -> str:
    """The first sentence of the summary, else of the first message's own words, else the name of its file."""
    told, said = _OF_THE_USER.sub("", _first_sentence(summary)), _FORWARD_MARKS.sub("", asked)
    return (
        clipped(told[:1].upper() + told[1:] or _first_sentence(_QUOTES.sub("", said)) or _first_sentence(said) or file)
        or UNTITLED
    )


def clipped(words: str, longest: int = MAX_TITLE) -> str:
    """In one line, cut between two words."""
    line = one_line(words, longest + 1)
    if len(line) <= longest:
        return line
    return f"{line[:longest].rsplit(' ', 1)[0].rstrip(' ,;:')}…"


def _first_sentence(text: str) -> str:
    lines = (_LEAD.sub("", line).strip() for line in text.splitlines())
    return _SENTENCE.split(next(filter(None, lines), ""), 1)[0].rstrip(".。 ")


MAX_OWN_TIMES = 4
"""Dates, times of day and lengths in a message: among more of them, which one is meant says something by itself."""
_VALUE = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::00)?")
_DATE = re.compile(r"(?<![\w./-])(?:(\d{4})-(\d\d)-(\d\d)|(\d\d?)\.(\d\d?)\.(\d{4}))(?![\w-])")
_TIME = re.compile(r"(?<![\w.:+-])(\d\d?):(\d\d)(?:\s?([ap])\.?m\b)?(?![\w:])", re.IGNORECASE)
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_LENGTH = re.compile(rf"\b(\d{{1,3}}|{'|'.join(_NUMBERS)})[ -]?(hour|minute|h|min)s?\b", re.IGNORECASE)


def is_own_words(text: str, value: str) -> bool:
    """Whether who wrote `text` wrote `value`, word for word.

    `2024-05-19 13:00` is theirs, too, where one message has its date and its time, or a time an hour before and "for
    one hour".
    """
    return quotes_whole(text, value) or _says_time(text, value)


def _says_time(text: str, value: str) -> bool:
    if not (match := _VALUE.fullmatch(value.strip())):
        return False
    parts = set(_dates(text)), set(_times(text)), {timedelta(), *_lengths(text)}
    if any(len(part) > MAX_OWN_TIMES for part in parts):
        return False
    wanted = f"{match[1]} {match[2]}"
    return any(f"{day + time + length:%Y-%m-%d %H:%M}" == wanted for day, time, length in product(*parts))


def _dates(text: str) -> Iterator[datetime]:
    for match in _DATE.finditer(text):
        year, month, day = match.group(1, 2, 3) if match[1] else match.group(6, 5, 4)
        with suppress(ValueError):
            yield datetime(int(year), int(month), int(day))


def _times(text: str) -> Iterator[timedelta]:
    for match in _TIME.finditer(text):
        hour, minute, half = int(match[1]), int(match[2]), (match[3] or "").lower()
        if half and not 1 <= hour <= 12:
            continue
        hour = hour % 12 + 12 * (half == "p") if half else hour
        if hour < 24 and minute < 60:
            yield timedelta(hours=hour, minutes=minute)


def _lengths(text: str) -> Iterator[timedelta]:
    for match in _LENGTH.finditer(text):
        count = int(match[1]) if match[1].isdecimal() else _NUMBERS.index(match[1].lower()) + 1
        yield timedelta(hours=count) if match[2].lower().startswith("h") else timedelta(minutes=count)
