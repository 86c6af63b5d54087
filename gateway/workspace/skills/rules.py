"""The rules of the scan of skills: words, and the patterns around them."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import partial


class Severity(StrEnum):
    """A severe finding takes an extra word of the owner's."""

    SEVERE = "severe"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Chain:
    """Patterns in this order, at most so many characters apart; searched in linear time, unlike one pattern."""

    parts: tuple[re.Pattern[str], ...]
    gaps: tuple[int, ...]

    @classmethod
    def of(cls, first: str, *further: tuple[int, str]) -> "Chain":
        """A part ends where its pattern does, or at most where its group `tail` does."""
        parts = (first, *(pattern for _, pattern in further))
        return cls(tuple(re.compile(f"(?=(?P<part>{each}))", re.I) for each in parts), tuple(gap for gap, _ in further))

    def search(self, text: str) -> bool:
        """Whether it is in the text."""
        reached = [_ends(match) for match in self.parts[0].finditer(text)]
        for part, gap in zip(self.parts[1:], self.gaps, strict=True):
            found, at, furthest = list[tuple[int, int]](), 0, -1
            for match in part.finditer(text) if reached else ():
                while at < len(reached) and reached[at][0] <= match.start():
                    furthest, at = max(furthest, reached[at][1] + gap), at + 1
                if match.start() <= furthest:
                    found.append(_ends(match))
            reached = sorted(found)
        return bool(reached)


def _ends(match: re.Match[str]) -> tuple[int, int]:
    tail = match.end("tail") if "tail" in match.re.groupindex else -1
    return (match.start("tail") if tail >= 0 else match.end("part")), max(tail, match.end("part"))


@dataclass(frozen=True, slots=True)
class Rule:
    """A line that matches is worth a look, unless it matches `but`; it has one of the `words`, and one of `also`."""

    severity: Severity
    why: str
    words: frozenset[str]
    pattern: re.Pattern[str] | Chain
    but: re.Pattern[str] | None = None
    also: frozenset[str] = frozenset()


_RUN = r"(?:(?:ba|z|da|k)?sh|python3?|perl|ruby|node|php|pwsh|powershell|iex|eval|source)\b"
_FETCH = r"\b(?:curl|wget|iwr|Invoke-WebRequest)\b"
_DECODE = r"\b(?:base64|xxd|uudecode|openssl\s+(?:enc|base64)|gunzip|zcat)\b"
_UNPACK = r"(?:b64decode|atob|fromhex|unhexlify|decompress|rot13|fromCharCode)"
_COLLECTORS = (
    r"webhook\.site|requestbin|ngrok|pipedream\.net|burpcollaborator|interact\.sh|\boast\.\w+|dnslog|transfer\.sh"
)
_NAMED = r"\b(?:api|access|private)[ _-]?keys?\b|\b(?:password|credential)s?\b"
_VARIABLE = r"\$\{?\w*?(?:API_?KEY|TOKEN|SECRET|PASSWORD)"
_KEYS = rf"{_VARIABLE}\w*|{_NAMED}"
_SENT_AS_USUAL = r"Authorization|Bearer|x-api-key|\$\{secret:"


def _rule(severity: Severity, why: str, words: str, pattern: str | Chain, but: str = "", also: str = "") -> Rule:
    found = pattern if isinstance(pattern, Chain) else re.compile(pattern, re.I)
    unless = re.compile(but, re.I) if but else None
    return Rule(severity, why, frozenset(words.split()), found, unless, frozenset(also.split()))


_severe, _note = partial(_rule, Severity.SEVERE), partial(_rule, Severity.NOTE)


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
NETWORK, FILES = "reaches the network", "mentions private files"
_NET_WORDS = (
    "curl wget nc netcat socat scp sftp rsync ssh telnet iwr invoke-webrequest urllib urlopen aiohttp axios "
    "requests httpx fetch( xmlhttprequest socket http webhook"
)
_KEY_WORDS = "key token secret password credential"
_PIPED = rf"\|\s*(?:sudo\s+)?{_RUN}"

RULES = (
    _severe("runs what it downloads", "curl wget iwr invoke-webrequest", Chain.of(_FETCH, (300, _PIPED))),
    _severe("runs what it downloads", "curl wget", Chain.of(rf"\b{_RUN}", (40, r"(?:<\(|\$\(|`)\s*(?:curl|wget)\b"))),
    _severe("runs encoded commands", "base64 xxd uudecode openssl gunzip zcat", Chain.of(_DECODE, (200, _PIPED))),
    _severe(
        "runs encoded commands", "base64 xxd", Chain.of(rf"\b{_RUN}", (300, r"(?:base64\s+(?:-d|--decode)|xxd\s+-r)"))
    ),
    _severe("runs encoded commands", "-e", r"\s-(?:e|ec|enc|encodedcommand)\s+[a-z0-9+/=]{40,}"),
    _severe(
        "runs encoded commands",
        "b64decode atob fromhex unhexlify decompress rot13 fromcharcode",
        Chain.of(r"\b(?:exec|eval|system|Function|popen|run)\s*\(", (120, _UNPACK)),
    ),
    _severe("text written as character codes", r"\x \u00", r"(?:\\x[0-9a-f]{2}){16}|(?:\\u00[0-9a-f]{2}){16}"),
    _severe("opens a raw connection", "/dev/", r"/dev/(?:tcp|udp)/"),
    _severe("opens a raw connection", "nc netcat", Chain.of(r"\b(?:nc|ncat|netcat)\b", (60, r"\s-[a-z]*[ec]\b"))),
    _severe(
        "names a service that collects data",
        "webhook requestbin ngrok pipedream burpcollaborator interact oast dnslog transfer",
        _COLLECTORS,
    ),
    _severe(
        SENDS,
        _KEY_WORDS,
        Chain.of(rf"{_VARIABLE}(?P<tail>\w*)|{_NAMED}", (200, f"(?:{NET.pattern})")),
        _SENT_AS_USUAL,
        _NET_WORDS,
    ),
    _severe(SENDS, _KEY_WORDS, Chain.of(f"(?:{NET.pattern})", (200, f"(?:{_KEYS})")), _SENT_AS_USUAL, _NET_WORDS),
    _severe("an image that leaks data", "](", r"!\[[^\]]{0,200}\]\(\s*https?://[^)\s]{0,300}[{<$]"),
    _severe(
        "tells the agent to ignore its instructions",
        "ignore disregard forget override",
        Chain.of(
            r"\b(?:ignore|disregard|forget|override)\b",
            (40, r"\b(?:previous|prior|above|earlier|system|other)\b"),
            (30, r"\b(?:instruction|prompt|rule|message|direction)"),
        ),
        also="instruction prompt rule message direction",
    ),
    _severe(
        "hides something from you",
        "not don't never without",
        Chain.of(
            r"\b(?:do not|don't|never|without)\b",
            (20, r"\b(?:tell|inform|mention|show|reveal|notify)\w*\b"),
            (20, r"\b(?:user|owner|human|person)\b"),
        ),
        also="user owner human person",
    ),
    _severe(
        "bypasses your approval",
        "approval permission confirmation consent sandbox",
        Chain.of(
            r"\b(?:without|skip|bypass|disable|avoid)\w*\b",
            (25, r"\b(?:approval|permission|confirmation|consent|sandbox)"),
        ),
        also="without skip bypass disable avoid",
    ),
    _note("mentions keys or passwords", _KEY_WORDS, _KEYS),
    _note(
        FILES, "~/. id_rsa id_ed25519 /etc/ .env printenv environ keychain history supaclaw_ master", PRIVATE.pattern
    ),
    _note(NETWORK, _NET_WORDS, NET.pattern),
    _note(
        "installs software",
        "pip uv npm yarn brew apt cargo gem go npx",
        r"\b(?:pip3?|pipx|uv|npm|pnpm|yarn|brew|apt|apt-get|cargo|gem|go)\s+(?:install|add|get|i)\b|\b(?:npx|uvx)\s+\S",
    ),
    _note("mentions the agent's own files", ".md .agents/", r"\b(?:AGENTS|SOUL|TOOLS|USER|HEARTBEAT)\.md\b|\.agents/"),
    _note("a comment that a rendered page doesn't show", "<!--", r"<!--"),
    _note(
        "deletes files or raises rights",
        "rm sudo chmod mkfs",
        r"\brm\s+-[a-z]*[rf]|\bsudo\b|\bchmod\s+(?:777|\+s)|\bmkfs",
    ),
)


SHORT_WORDS = frozenset({"nc", "not", "rm", "go", "uv", "gem", "apt", "npx", "ssh", "scp", "iwr", "user", "rule"})
"""Before which the patterns of all their rules want a `\\b`."""
