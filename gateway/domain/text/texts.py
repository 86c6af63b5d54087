"""Text from elsewhere: made safe to store and show, given a title, and searched for a person's own words."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import product

SHORTEST_QUOTE = 3
EDITED = "[Edited: the message of"
"""How the mark of an edit begins; the text of no person does."""
_BETWEEN = r"(?:\s*[,;&]\s*|\s+)(?:\w{1,3}\s+)?"


def storable(text: str) -> str:
    """The text as databases and providers accept it: without NUL, with lone surrogates replaced by question marks."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def key_digest(key: str) -> str:
    """Stands for a key that a client chose, whose words no row has to keep."""
    return hashlib.sha256(key.encode()).hexdigest()


def own_part(text: str) -> str:
    """A stored message without the lines that it quotes and the mark of an edit."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(">") and not line.startswith(EDITED))


def quotes_whole(text: str, *values: str) -> bool:
    """Whether the values stand in the text for themselves, one after the other: `a@b.c` does not in `a@b.com`.

    Between two of them may be commas, or a short word such as "and". Nothing can be said of a value that is short or
    blank, or that has spaces around it.
    """
    if not values or any(len(value) < SHORTEST_QUOTE or value != value.strip() for value in values):
        return False
    together = _BETWEEN.join(map(re.escape, values))
    return re.search(rf"(?<![^\s\"'“„(<\[,;:]){together}(?![^\s\"'”)>\],;:.!?]|[.!?:]\S)", text) is not None


def one_line(text: str, limit: int) -> str:
    """The text for use in a line: at most `limit` characters, without line breaks, markup or invisible ones."""
    seen = (" " if unicodedata.category(char) in _UNSEEN or char in "`" else char for char in text[: limit * 8])
    return " ".join("".join(seen).split())[:limit]


def first_of(lines: Sequence[str], limit: int, more: str = "and {:,} more") -> list[str]:
    """As many lines as there may be, and one that says how many are left out if any are."""
    left_out = len(lines) - limit
    return [*lines[:limit], more.format(left_out)] if left_out > 0 else [*lines]


def printable(text: str, keep: str = "\n\t") -> str:
    """The text for a terminal: controls, bidirectional marks and invisible characters, except `keep`, as escapes."""
    if text.isprintable():
        return text
    kept = f"{keep}{_JOINERS}"
    shown = (char if char in kept or unicodedata.category(char) not in _UNSEEN else _escaped(char) for char in text)
    return "".join(shown)


def size_text(size: int) -> str:
    """A number of bytes for people; `ui.js` writes it in the same way."""
    if size < 1000:
        return f"{size} B"
    step, unit = next(
        pair for pair in ((1e3, "kB"), (1e6, "MB"), (1e9, "GB")) if size < 999.5 * pair[0] or pair[0] > 1e6
    )
    return f"{size / step:.{1 if size < 9.95 * step else 0}f} {unit}"


def compact(number: float) -> str:
    """A count for people: 950, 1.2k, 34k, 5.6M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.{1 if number < 10 * size else 0}f}{unit}"
    return f"{number:.0f}"


def letters_in(text: str) -> str:
    """Only its letters and digits, for comparisons: without case and the forms that Unicode holds for equal."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


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

_PREFACES = re.compile(r"(?m)^(?:\[Forwarded from .*|\(Instructions from the client\)|This is a task .*|The task:)$")
_QUOTES = re.compile(r"^>.*$", re.MULTILINE)
_LEAD = re.compile(r"^(?:[#*\-+>\s\"'“„]|\d+[.)]\s)+")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s")
_OF_THE_USER = re.compile(
    r"^(?:the )?user (?:wants|wanted|asks|asked|would like|needs|needed)(?: the agent)?(?: to| for| about)? ", re.I
)


def title(asked: str, summary: str = "", file: str = "") -> str:
    """The first sentence of the summary, else of the first message's own words, else the name of its file."""
    told, said = _OF_THE_USER.sub("", _first_sentence(summary)), _PREFACES.sub("", asked)
    return (
        clipped(told[:1].upper() + told[1:] or _first_sentence(_QUOTES.sub("", said)) or _first_sentence(said) or file)
        or UNTITLED
    )


def clipped(words: str, longest: int = MAX_TITLE) -> str:
    """In one line, cut between two words."""
    line = one_line(words, longest + 1)
    return line if len(line) <= longest else f"{line[:longest].rsplit(' ', 1)[0].rstrip(' ,;:')}…"


def _first_sentence(text: str) -> str:
    lines = (_LEAD.sub("", line).strip() for line in text.splitlines())
    return _SENTENCE.split(next(filter(None, lines), ""), 1)[0].rstrip(".。 ")


MAX_OWN_TIMES = 4
"""Dates, times of day and lengths in a message: among more of them, which one is meant says something by itself."""
_DATE_LENGTH = len("2026-11-22")
_DATE = re.compile(r"(?<![\w./-])(?:(\d{4})-(\d\d)-(\d\d)|(\d\d?)\.(\d\d?)\.(\d{4}))(?![\w-])")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH, _DAY = rf"({'|'.join(_MONTHS)})[a-z]*\.?", r"(\d\d?)(?:st|nd|rd|th)?"
_NAMED_DATE = re.compile(rf"\b(?:{_DAY}(?: of)? {_MONTH}|{_MONTH} {_DAY}),? (\d{{4}})\b", re.IGNORECASE)
_TIME = re.compile(r"(?<![\w.:+-])(\d\d?)(?::(\d\d))?(?:\s?([ap])\.?m\b)?(?![\w:])", re.IGNORECASE)
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_LENGTH = re.compile(rf"\b(\d{{1,3}}|{'|'.join(_NUMBERS)})[ -]?(hour|minute|h|min)s?\b", re.IGNORECASE)


def is_own_words(text: str, values: Sequence[str]) -> bool:
    """Whether the author of `text` wrote these values in it, word for word and in this order.

    One value may be a time in ISO 8601 that the text means: by its date and its time, or by an hour before and "for one
    hour".
    """
    return quotes_whole(text, *values) or (len(values) == 1 and _says_time(text, values[0]))


def _says_time(text: str, value: str) -> bool:
    if (wanted := _iso_time(value)) is None:
        return False
    days, times, lengths = set(_dates(text)), set(_times(text)), {timedelta(), *_lengths(text)}
    if max(len(days), len(times), len(lengths)) > MAX_OWN_TIMES:
        return False
    if len(value) == _DATE_LENGTH:
        return wanted in days
    return any(day + time + length == wanted for day, time, length in product(days, times, lengths))


def _iso_time(value: str) -> datetime | None:
    """A local date or time in one of its usual spellings: a choice among many would say something, too."""
    with suppress(ValueError):
        at = datetime.fromisoformat(value)
        usual = {at.isoformat(between, spec) for between in " T" for spec in ("minutes", "seconds")}
        if at.tzinfo is None and value in {*usual, f"{at:%Y-%m-%d}"}:
            return at
    return None


def _dates(text: str) -> Iterator[datetime]:
    numbers = [match.group(1, 2, 3) if match[1] else match.group(6, 5, 4) for match in _DATE.finditer(text)]
    for match in _NAMED_DATE.finditer(text):
        numbers.append((match[5], str(_MONTHS.index((match[2] or match[3]).lower()) + 1), match[1] or match[4]))
    for year, month, day in numbers:
        with suppress(ValueError):
            yield datetime(int(year), int(month), int(day))


def _times(text: str) -> Iterator[timedelta]:
    for match in _TIME.finditer(text):
        hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or "").lower()
        if not (match[2] or half) or (half and not 1 <= hour <= 12):
            continue
        hour = hour % 12 + 12 * (half == "p") if half else hour
        if hour < 24 and minute < 60:
            yield timedelta(hours=hour, minutes=minute)


def _lengths(text: str) -> Iterator[timedelta]:
    for match in _LENGTH.finditer(text):
        count = int(match[1]) if match[1].isdecimal() else _NUMBERS.index(match[1].lower()) + 1
        yield timedelta(hours=count) if match[2].lower().startswith("h") else timedelta(minutes=count)
