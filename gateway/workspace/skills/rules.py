"""What a scan of a skill looks for, a pattern each; all of them take time in proportion to the line."""

import re
from dataclasses import dataclass
from enum import StrEnum


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
