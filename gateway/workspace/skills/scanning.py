"""What in a skill a person should look at before it is confirmed.

A scan finds what is written plainly and the usual ways to hide it; it proves nothing. What protects is that a person
confirms exactly these bytes, and that the policy asks about what the agent does with them.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gateway.workspace.skills.folder import Files
from gateway.workspace.skills.rules import NET, PRIVATE, RULES, SENDS, Severity

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
    """What was found, the severe first; at most `MOST`."""
    found = [finding for path, data in sorted(files.items()) for finding in dict.fromkeys(_file(path, data))]
    return tuple(sorted(found, key=lambda each: each.severity is Severity.NOTE)[:MOST])


def severe(findings: Iterable[Finding]) -> bool:
    """Whether one of them takes the owner's extra word."""
    return any(each.severity is Severity.SEVERE for each in findings)


def _file(path: str, data: bytes) -> Iterator[Finding]:
    if data.startswith(_PROGRAMS):
        yield Finding(Severity.SEVERE, path, 0, "a compiled program, which can't be reviewed")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        yield Finding(Severity.NOTE, path, 0, "not text, so it was not scanned")
        return
    private, sends = -NEAR, -NEAR
    for number, line in _lines(text.removeprefix("\ufeff")):
        if hidden := sorted({char for char in line if _is_hidden(char)}):
            codes = ", ".join(f"U+{ord(char):04X}" for char in hidden[:5])
            yield Finding(Severity.SEVERE, path, number, f"invisible characters ({codes})")
        plain = unicodedata.normalize("NFKC", "".join(char for char in line if not _is_hidden(char)))
        for piece in _pieces(plain):
            yield from (Finding(severity, path, number, why) for severity, why in _reasons(piece))
            private = number if PRIVATE.search(piece) else private
            sends = number if NET.search(piece) else sends
        if number in (private, sends) and abs(private - sends) < NEAR and min(private, sends) > 0:
            yield Finding(Severity.SEVERE, path, number, SENDS)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each with its number; a command that goes on after a backslash is one line."""
    begun, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        first = first or number
        if line.rstrip("\r").endswith("\\") and len(begun) < _PIECE:
            begun += line.rstrip("\r")[:-1] + " "
            continue
        yield first, begun + line
        begun, first = "", 0
    if begun:
        yield first, begun


def _pieces(line: str) -> Iterator[str]:
    return (line[start : start + _PIECE] for start in range(0, max(1, len(line)), _PIECE - _OVERLAP))


def _reasons(piece: str) -> Iterator[tuple[Severity, str]]:
    for rule in RULES:
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
