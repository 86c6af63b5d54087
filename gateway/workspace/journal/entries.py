"""The journal's entries and their format: a signed header in an HTML comment, a heading, the exact text, a blank line.

Nothing inside a text can become an entry: the header says how long the text is, so an intact text is never parsed, and
a forged header has no valid signature. A genuine entry pasted into a message is found only where damage lets the parser
look there; then it says what it always said, under an id that the database already has.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from gateway.domain.channels.routing import command_in
from gateway.domain.conversation.inbound import Address, Arrival, Inbound
from gateway.domain.ids import EntryId
from gateway.domain.text.texts import storable

JournalKind = Literal[
    "message", "command", "edit", "user", "assistant", "tool_intent", "tool_result", "summary", "notice"
]


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One message and the files that came with it. With `inbound` it can be stored again; without, it copies a row."""

    id: EntryId
    kind: JournalKind
    at: datetime
    who: str
    text: str
    inbound: Inbound | None = None
    files: tuple[str, ...] = ()

    @property
    def arrival(self) -> Arrival | None:
        """The message as the channel delivered it; None for a copy of a row."""
        return None if self.inbound is None else Arrival(self.id, self.inbound, self.at)


def entry_of(arrival: Arrival) -> JournalEntry:
    """The entry for a message that the database does not have yet."""
    inbound: Inbound = _storable(arrival.inbound)
    kind: JournalKind = "edit" if inbound.edits is not None else "command" if command_in(inbound)[0] else "message"
    files = tuple(attachment.name or "file" for attachment in inbound.attachments)
    who = f"{inbound.sender.name}, forwarded from {inbound.forwarded}" if inbound.forwarded else inbound.sender.name
    return JournalEntry(arrival.id, kind, arrival.at, who, inbound.text, inbound, files)


def _storable(value: Any) -> Any:
    """The same with texts that the database can hold, at any depth."""
    if isinstance(value, tuple):
        return tuple(map(_storable, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _storable(getattr(value, field.name)) for field in fields(value)})
    return storable(value) if isinstance(value, str) else value


NAME_LENGTH = 80
FILE_LENGTH = 500

_OPENING = b"<!-- claw "
_CLOSING = b" -->\n"
_MAC = b',"mac":"'
_END = b'"}'
_DIGITS = 64

_ENTRY = TypeAdapter(JournalEntry)


class _Header(BaseModel, frozen=True, extra="allow"):
    """`length` and `sha256` are of the body: heading and files, a blank line, the text; the rest is the entry."""

    length: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Content:
    """The entries of a file, each once; not `intact` if anything in it is not a verified entry."""

    entries: tuple[JournalEntry, ...]
    intact: bool

    @property
    def arrivals(self) -> list[Arrival]:
        """The arrivals that the file holds, in its order."""
        return [arrival for entry in self.entries if (arrival := entry.arrival) is not None]


def render_entries(entries: Iterable[JournalEntry], key: bytes) -> bytes:
    """A whole file or a part of one; the same entry is the same bytes each time."""
    return b"".join(_rendered(entry, key) for entry in entries)


def parse_entries(data: bytes, key: bytes) -> Content:
    """Every entry that verifies, each once; after damage the search goes on at what looks like the next header."""
    found: dict[EntryId, JournalEntry] = {}
    intact, place = True, 0
    while 0 <= place < len(data):
        block = _block(data, place, key)
        if block is None:
            intact, place = False, data.find(_OPENING, place + 1)
        else:
            entry, place = block
            found.setdefault(entry.id, entry)
    return Content(tuple(found.values()), intact)


def _rendered(entry: JournalEntry, key: bytes) -> bytes:
    heading = f"### {_one_line(entry.who)} · {entry.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    lines = "\n".join([heading, *(f"📎 {_one_line(file, FILE_LENGTH)}" for file in entry.files)])
    body = f"{lines}\n\n{entry.text}".encode()
    signed = _signed(entry, body)
    return b"".join((_OPENING, signed[:-1], _MAC, _mac(signed, key), _END, _CLOSING, body, b"\n\n"))


def _block(data: bytes, start: int, key: bytes) -> tuple[JournalEntry, int] | None:
    """The verified entry at this place and where it ends."""
    header, begin = _header(data, start, key)
    if header is None:
        return None
    end = begin + header.length
    body = data[begin:end]
    if data[end : end + 2] != b"\n\n" or hashlib.sha256(body).hexdigest() != header.sha256:
        return None
    entry = _entry(header, body.decode().partition("\n\n")[2])
    return None if entry is None else (entry, end + 2)


def _header(data: bytes, start: int, key: bytes) -> tuple[_Header | None, int]:
    """The header, if it was signed by us, and where it ends.

    No header of ours holds a double hyphen, so the next one ends it: a text full of look-alikes costs one reading.
    """
    if not data.startswith(_OPENING, start):
        return None, start
    end = data.find(b"--", start + len(_OPENING)) - 1
    if end < 0 or not data.startswith(_CLOSING, end):
        return None, start
    head, _, rest = data[start + len(_OPENING) : end].rpartition(_MAC)
    signed, mac = head + b"}", rest.removesuffix(_END) if len(rest) == _DIGITS + len(_END) else b""
    if not hmac.compare_digest(mac, _mac(signed, key)):
        return None, start
    try:
        return _Header.model_validate_json(signed), end + len(_CLOSING)
    except ValidationError:  # signed by another version of the program
        return None, start


def _entry(header: _Header, text: str) -> JournalEntry | None:
    said = header.model_extra or {}
    inbound = said.get("inbound")
    with suppress(ValidationError):
        if isinstance(inbound, dict):
            said = {**said, "inbound": {"as_owner": not _by_token(inbound), **inbound, "text": text}}
        return _ENTRY.validate_python({**said, "text": text})
    return None


def _by_token(inbound: dict[str, Any]) -> bool:
    """Whether it came with a token, as far as a header tells that does not say what the token was worth."""
    match inbound.get("address"):
        case {"channel": str(channel), "account": str(account)}:
            return channel == "api" or Address(channel, account, "").by_token
        case _:
            return True


def _signed(entry: JournalEntry, body: bytes) -> bytes:
    header = {
        **_ENTRY.dump_python(entry, mode="json", exclude_none=True, exclude=_left_out(entry)),
        "length": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    # ASCII, and no value can end the comment.
    text = json.dumps(header, separators=(",", ":"))
    return text.replace("--", "-\\u002d").replace(">", "\\u003e").encode("ascii")


def _left_out(entry: JournalEntry) -> dict[str, bool | set[str]]:
    """The text stands in the body, and what was never there is not told."""
    return {"text": True, "inbound": {"text"}, **({} if entry.files else {"files": True})}


def _mac(signed: bytes, key: bytes) -> bytes:
    return hmac.digest(key, signed, "sha256").hex().encode("ascii")


def _one_line(name: str, most: int = NAME_LENGTH) -> str:
    shown = " ".join("".join(char if char.isprintable() else " " for char in name).split())
    return shown.replace("<", "&lt;")[:most] or "?"
