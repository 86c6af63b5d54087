"""Find the parts of a skill that a person should look at before confirming it.

A scan finds what is written plainly and the usual ways to hide it; it proves nothing. The protection is that a person
confirms exactly these bytes, and that the policy asks about what the agent does with them.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gateway.workspace.skills.folder import Files
from gateway.workspace.skills.rules import FILES, NETWORK, RULES, SENDS, SHORT_WORDS, Severity

if TYPE_CHECKING:
    from ahocorasick_rs import AhoCorasick


MAX_TEXT = 4 * 2**20
"""Characters that are scanned."""
MOST = 100
"""Findings that are listed."""
NEAR = 5
"""Lines between what is private and what sends it."""
_PIECE, _OVERLAP = 4_000, 500
"""Of a long line that is looked at together."""

_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{40,}")
_COMMANDS = re.compile(rb"\b(?:curl|wget|bash|sh|eval|exec|import|https?|rm|nc|powershell)\b")
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\x00asm")
_SEEN = frozenset("\t\r\x0c\u200c\u200d\ufe0e\ufe0f")
"""Layout; and joiners and selectors, with which Persian words and many emoji are made."""
_UNUSUAL = re.compile(r"[^\t\n\r\x0c -~]")
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")


@dataclass(frozen=True, slots=True)
class Finding:
    """Where and why; line 0 is the whole file."""

    severity: Severity
    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.file}{f':{self.line}' if self.line else ''}: {self.why}"


def scan(files: Files) -> tuple[Finding, ...]:
    """The findings, severe ones first; at most `MOST`. Takes about 0.2 CPU seconds per MB of text."""
    severe, notes, room = dict[Finding, None](), dict[Finding, None](), MAX_TEXT
    for path, data in sorted(files.items()):
        text = _decoded(data)
        room -= len(text or "")
        for finding in _file(path, data, text, room):
            (severe if finding.severity is Severity.SEVERE else notes)[finding] = None
            if len(severe) == MOST:
                return tuple(severe)
    return (*severe, *notes)[:MOST]


def severe(findings: Iterable[Finding]) -> bool:
    """Whether one of them takes the owner's extra word."""
    return any(each.severity is Severity.SEVERE for each in findings)


def _decoded(data: bytes) -> str | None:
    with suppress(UnicodeDecodeError):
        return data.decode().removeprefix("\ufeff")
    return None


def _file(path: str, data: bytes, text: str | None, room: int) -> Iterator[Finding]:
    if data.startswith(_PROGRAMS):
        yield Finding(Severity.SEVERE, path, 0, "a compiled program, which can't be reviewed")
    if text is None:
        yield Finding(Severity.NOTE, path, 0, "not text, so it was not scanned")
        return
    if room < 0:
        yield Finding(Severity.SEVERE, path, 0, f"not scanned: the skill has more than {MAX_TEXT >> 20} MB of text")
        return
    hidden = frozenset(filter(_is_hidden, {*_UNUSUAL.findall(text)}))
    numbers = _suspicious_lines(text, hidden)
    private, sends = -NEAR, -NEAR
    for number, line in _lines(text, numbers) if numbers else ():
        if unseen := sorted(hidden.intersection(line)):
            codes = ", ".join(f"U+{ord(char):04X}" for char in unseen[:5])
            yield Finding(Severity.SEVERE, path, number, f"invisible characters ({codes})")
        whys = set[str]()
        for piece in _pieces(_plain(line, hidden)):
            for severity, why in _reasons(piece, whys):
                whys.add(why)
                yield Finding(severity, path, number, why)
        private = number if FILES in whys else private
        sends = number if NETWORK in whys else sends
        if number in (private, sends) and abs(private - sends) < NEAR and min(private, sends) > 0:
            yield Finding(Severity.SEVERE, path, number, SENDS)


@cache
def _words() -> tuple["AhoCorasick", tuple[str, ...], dict[str, tuple[int, ...]]]:
    """Finds the words of rules; the words in its order; and for each the numbers of the rules it begins."""
    from ahocorasick_rs import AhoCorasick

    words = sorted({word for rule in RULES for word in rule.words | rule.also})
    rules = {word: tuple(at for at, rule in enumerate(RULES) if word in rule.words) for word in words}
    return AhoCorasick(words), tuple(words), rules


def _found(folded: str) -> Iterator[tuple[str, int]]:
    """The words of rules and their places; a short one counts where a word begins: there is an `nc` in `once`."""
    finder, words, _ = _words()
    for number, at, _ in finder.find_matches_as_indexes(folded, overlapping=True):
        word = words[number]
        if word not in SHORT_WORDS or not at or not (folded[at - 1].isalnum() or folded[at - 1] == "_"):
            yield word, at


def _suspicious_lines(text: str, hidden: frozenset[str]) -> AbstractSet[int]:
    """The numbers of lines in which a rule may match, as they have a word of it; ends of lines stay as they are."""
    plain = _plain(text, hidden)
    folded = _folded(plain)
    rules = _words()[2]
    found = {*_numbers(folded, (at for word, at in _found(folded) if rules[word]))}
    found.update(_numbers(plain, (match.start() for match in _ENCODED.finditer(plain))))
    if hidden:
        unseen = re.compile(f"[{re.escape(''.join(hidden))}]+")
        found.update(_numbers(text, (match.start() for match in unseen.finditer(text))))
    return found


def _folded(text: str) -> str:
    """As patterns read it that ignore case."""
    return text.replace("\u0130", "i").replace("\u0131", "i").lower()


def _numbers(text: str, places: Iterable[int]) -> Iterator[int]:
    """Of the lines of these places, in order."""
    line, before = 1, 0
    for at in places:
        line, before = line + text.count("\n", before, at), at
        yield line


def _plain(text: str, hidden: frozenset[str]) -> str:
    shown = text if hidden.isdisjoint(text) else "".join(char for char in text if char not in hidden)
    return unicodedata.normalize("NFKC", shown)


def _lines(text: str, numbers: AbstractSet[int]) -> Iterator[tuple[int, str]]:
    """Those with one of the numbers, by their first; a command that goes on after a backslash is one line."""
    lines = text.split("\n")
    if "\\\n" not in text and "\\\r" not in text:
        yield from ((number, lines[number - 1]) for number in sorted(numbers))
        return
    begun, first = "", 0
    for number, line in enumerate(lines, 1):
        first = first or number
        plain = line.rstrip("\r")
        if plain.endswith("\\") and number < len(lines) and len(begun) < _PIECE:
            begun += plain[:-1] + " "
            continue
        if not numbers.isdisjoint(range(first, number + 1)):
            yield first, begun + line
        begun, first = "", 0


def _pieces(line: str) -> Iterator[str]:
    return (line[start : start + _PIECE] for start in range(0, max(1, len(line)), _PIECE - _OVERLAP))


def _reasons(piece: str, known: AbstractSet[str]) -> Iterator[tuple[Severity, str]]:
    """But those that are known of the line already."""
    rules, found = _words()[2], {word for word, _ in _found(_folded(piece))}
    for rule in (RULES[at] for at in sorted({at for word in found for at in rules[word]})):
        if rule.why in known or (rule.also and found.isdisjoint(rule.also)):
            continue
        if rule.pattern.search(piece) and not (rule.but and rule.but.search(piece)):
            yield rule.severity, rule.why
    if any(_is_command(match[0]) for match in _ENCODED.finditer(piece)):
        yield Severity.SEVERE, "encoded commands"


def _is_hidden(char: str) -> bool:
    if (char.isascii() and char.isprintable()) or char in _SEEN:
        return False
    return unicodedata.category(char) in {"Cc", "Cf", "Co"} or 0xE0100 <= ord(char) <= 0xE01EF or char in _BLANKS


def _is_command(text: str) -> bool:
    """Whether it is base64 of something that a shell or an interpreter would run."""
    try:
        data = base64.b64decode(text[: len(text) // 4 * 4].translate(str.maketrans("-_", "+/")))
    except (binascii.Error, ValueError):
        return False
    return data[:200].isascii() and bool(_COMMANDS.search(data))
