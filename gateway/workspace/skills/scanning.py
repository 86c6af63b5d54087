"""Find the parts of a skill that a person should look at before confirming it.

A scan finds what is written plainly and the usual ways to hide it; it proves nothing. The protection is that a person
confirms exactly these bytes, and that the policy asks about what the agent does with them.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from gateway.workspace.skills.folder import Files


class Severity(StrEnum):
    """A severe finding takes an extra word of the owner's."""

    SEVERE = "severe"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Rule:
    """A line that matches is worth a look, unless it matches `but`."""

    severity: Severity
    why: str
    pattern: re.Pattern[str]
    but: re.Pattern[str] | None = None


_RUN = r"(?:(?:ba|z|da|k)?sh|python3?|perl|ruby|node|php|pwsh|powershell|iex|eval|source)\b"
_FETCH = r"\b(?:curl|wget|iwr|Invoke-WebRequest)\b"
_DECODE = r"\b(?:base64|xxd|uudecode|openssl\s+(?:enc|base64)|gunzip|zcat)\b"
_UNPACK = r"(?:b64decode|atob|fromhex|unhexlify|decompress|rot13|fromCharCode)"
_COLLECTORS = (
    r"webhook\.site|requestbin|ngrok|pipedream\.net|burpcollaborator|interact\.sh|\boast\.\w+|dnslog|transfer\.sh"
)
_KEYS = (
    r"\$\{?\w*(?:API_?KEY|TOKEN|SECRET|PASSWORD)\w*|\b(?:api|access|private)[ _-]?keys?\b|\b(?:password|credential)s?\b"
)
_SENT_AS_USUAL = r"Authorization|Bearer|x-api-key|\$\{secret:"


def _rule(severity: Severity, why: str, pattern: str, but: str = "") -> Rule:
    return Rule(severity, why, re.compile(pattern, re.I), re.compile(but, re.I) if but else None)


NET = re.compile(
    r"\b(?:curl|wget|nc|ncat|netcat|socat|scp|sftp|rsync|ssh|telnet|iwr|Invoke-WebRequest|urllib|urlopen|aiohttp|axios)\b"
    r"|\b(?:requests|httpx)\.\w+\(|\bfetch\(|XMLHttpRequest|\bsocket\.\w|\bhttps?://|\bwebhook\b",
    re.I,
)
PRIVATE = re.compile(
    r"~/\.(?:ssh|aws|gnupg|netrc|docker|kube)\b|\bid_(?:rsa|ed25519)\b|/etc/(?:passwd|shadow)\b|(?<!\w)\.env\b|\bprintenv\b"
    r"|\bdict\(os\.environ|\bkeychain\b|\b(?:conversation|chat) history\b|\bSUPACLAW_\w+|\bmaster[ _.]key\b",
    re.I,
)

SENDS = "sends secret or private data"
NETWORK = "reaches the network"

RULES = (
    _rule(Severity.SEVERE, "runs what it downloads", rf"{_FETCH}.{{0,300}}\|\s*(?:sudo\s+)?{_RUN}"),
    _rule(Severity.SEVERE, "runs what it downloads", rf"\b{_RUN}.{{0,40}}(?:<\(|\$\(|`)\s*(?:curl|wget)\b"),
    _rule(Severity.SEVERE, "runs encoded commands", rf"{_DECODE}.{{0,200}}\|\s*(?:sudo\s+)?{_RUN}"),
    _rule(Severity.SEVERE, "runs encoded commands", rf"\b{_RUN}.{{0,300}}(?:base64\s+(?:-d|--decode)|xxd\s+-r)"),
    _rule(Severity.SEVERE, "runs encoded commands", r"\s-(?:e|ec|enc|encodedcommand)\s+[a-z0-9+/=]{40,}"),
    _rule(
        Severity.SEVERE, "runs encoded commands", rf"\b(?:exec|eval|system|Function|popen|run)\s*\(.{{0,120}}{_UNPACK}"
    ),
    _rule(Severity.SEVERE, "text written as character codes", r"(?:\\x[0-9a-f]{2}){16}|(?:\\u00[0-9a-f]{2}){16}"),
    _rule(Severity.SEVERE, "opens a raw connection", r"/dev/(?:tcp|udp)/|\b(?:nc|ncat|netcat)\b.{0,60}\s-[a-z]*[ec]\b"),
    _rule(Severity.SEVERE, "names a service that collects data", _COLLECTORS),
    _rule(Severity.SEVERE, SENDS, rf"(?:{_KEYS}).{{0,200}}(?:{NET.pattern})", _SENT_AS_USUAL),
    _rule(Severity.SEVERE, SENDS, rf"(?:{NET.pattern}).{{0,200}}(?:{_KEYS})", _SENT_AS_USUAL),
    _rule(Severity.SEVERE, "an image that leaks data", r"!\[[^\]]{0,200}\]\(\s*https?://[^)\s]{0,300}[{<$]"),
    _rule(
        Severity.SEVERE,
        "tells the agent to ignore its instructions",
        r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|system|other)\b"
        r".{0,30}\b(?:instruction|prompt|rule|message|direction)",
    ),
    _rule(
        Severity.SEVERE,
        "hides something from you",
        r"\b(?:do not|don't|never|without)\b.{0,20}\b(?:tell|inform|mention|show|reveal|notify)\w*\b"
        r".{0,20}\b(?:user|owner|human|person)\b",
    ),
    _rule(
        Severity.SEVERE,
        "bypasses your approval",
        r"\b(?:without|skip|bypass|disable|avoid)\w*\b.{0,25}\b(?:approval|permission|confirmation|consent|sandbox)",
    ),
    _rule(Severity.NOTE, "mentions keys or passwords", _KEYS),
    _rule(Severity.NOTE, "mentions private files", PRIVATE.pattern),
    _rule(Severity.NOTE, NETWORK, NET.pattern),
    _rule(
        Severity.NOTE,
        "installs software",
        r"\b(?:pip3?|pipx|uv|npm|pnpm|yarn|brew|apt|apt-get|cargo|gem|go)\s+(?:install|add|get|i)\b|\b(?:npx|uvx)\s+\S",
    ),
    _rule(Severity.NOTE, "mentions the agent's own files", r"\b(?:AGENTS|SOUL|TOOLS|USER|HEARTBEAT)\.md\b|\.agents/"),
    _rule(Severity.NOTE, "a comment that a rendered page doesn't show", r"<!--"),
    _rule(Severity.NOTE, "deletes files or raises rights", r"\brm\s+-[a-z]*[rf]|\bsudo\b|\bchmod\s+(?:777|\+s)|\bmkfs"),
)


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
    """The findings, severe ones first; at most `MOST`."""
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
