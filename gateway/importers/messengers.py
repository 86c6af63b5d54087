"""Exports of Telegram, Slack and WhatsApp: what the person said by their id there, and all else other people's."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from itertools import pairwise
from pathlib import Path, PurePath
from zipfile import is_zipfile
from zoneinfo import ZoneInfo

from gateway.domain.json import fields_of
from gateway.domain.memory.imports import MAX_TEXT, ImportedMessage, ImportedSession, Passed, Record
from gateway.domain.principals import Label
from gateway.importers import Source
from gateway.importers.records.files import ArrayItem, Line, Reader, text_lines
from gateway.importers.records.texts import (
    CutLines,
    export,
    has_near_start,
    items_of,
    text_or_empty,
    time_of,
)

_TELEGRAM = rb'"date_unixtime"|"personal_information"'
TELEGRAM_INTO = re.compile(rb'\{(?:(?:"(?:[^"\\]|\\.)*"|[^"{}\[\]])*"messages":\s*\[|\s*"about":)')
"""Objects that are too large to be held: a chat, up to its messages, and the list of chats."""


def _telegram(place: str, found: ArrayItem, reader: Reader) -> Iterator[Record]:
    """Yield a chat or a message of the chat before; a forwarded one is another person's, and one by a bot the bot's."""
    value = found.value
    if isinstance(value.get("messages"), list):
        yield ImportedSession(str(value.get("id")), None, f"{place} ({value.get('name') or 'Saved Messages'})")
        return
    if value.get("type") != "message":
        yield Passed("notices, contacts and settings")
        return
    parts = listed if isinstance(listed := value.get("text"), list) else [listed]
    text = "".join(text_or_empty(part) or text_or_empty(fields_of(part).get("text")) for part in parts)
    kind = text_or_empty(value.get("media_type")) or next((name for name in ("photo", "file") if name in value), "")
    at = time_of(value.get("date_unixtime")) or time_of(value.get("date"))
    anothers = {"forwarded_from", "forwarded_from_id", "via_bot"} & value.keys()
    own = f"telegram:{text_or_empty(value.get('from_id')).removeprefix('user')}" in reader.own and not anothers
    sender = text_or_empty(value.get("forwarded_from")) or text_or_empty(value.get("from"))
    yield _said([f"[{kind}]" if kind else "", text], at, place, str(value.get("id")), sender, own=own)


_SLACK_KINDS = {"", "bot_message", "thread_broadcast", "me_message", "file_share"}


def _slack(place: str, found: ArrayItem, reader: Reader) -> Iterator[Record]:
    """Yield a message; a folder is a conversation."""
    value, user = found.value, text_or_empty(found.value.get("user"))
    if value.get("type") != "message" or text_or_empty(value.get("subtype")) not in _SLACK_KINDS:
        yield Passed("notices")
        return
    profile, chat = fields_of(value.get("user_profile")), PurePath(place).parent.name
    sender = profile.get("display_name") or profile.get("real_name") or value.get("username") or user
    files = [f"[file: {text_or_empty(file.get('name'))[:100]}]" for file in items_of(value.get("files"))]
    stamp = text_or_empty(value.get("ts"))
    yield ImportedSession(chat, at := time_of(stamp), f"{place} (#{chat})")
    yield from (Passed("attachments") for _ in items_of(value.get("attachments")))
    words = [text_or_empty(value.get("text")), *files]
    yield _said(words, at, place, f"{stamp} {user}", str(sender), own=f"slack:{user}" in reader.own)


def _said(words: list[str], at: datetime | None, place: str, key: str, sender: str, *, own: bool) -> Record:
    """A message of a person: the one whose data it is, or another, whose words are untrusted."""
    if not (text := "\n".join(filter(None, words))):
        return Passed("empty")
    if own:
        return ImportedMessage("user", text, at, place, Label.OWNER, key)
    return ImportedMessage("user", f"{sender or 'Somebody'}: {text}", at, place, Label.UNTRUSTED, key)


_WHATSAPP = ("_chat.txt", "WhatsApp*.txt")
_LINE = re.compile(
    r"[\u200e\u200f]*\[?(\d{1,4})[./-](\d{1,2})[./-](\d{1,4}),?\s+(\d{1,2})[:.](\d\d)(?:[:.](\d\d))?\s*([AP]\.?M\.?)?\]?"
    r"\s*(?:-\s+)?(?:([^:]{1,80}): )?(.*)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Block(CutLines):
    """A message of WhatsApp, or a notice, while its lines are read; `begins` is the match of the first."""

    MAX_CHARS = MAX_TEXT

    line: int
    begins: re.Match[str]


def _whatsapp(path: Path, reader: Reader) -> Iterator[Record]:
    """Yield the chats; each is read twice, first for how it writes dates."""
    with reader.open_chunks(path) as files, replace(reader, advance=None).open_chunks(path) as again:
        for (name, read), (_, read_again) in zip(files, again, strict=True):
            if len(files) > 1 and not any(PurePath(name).match(pattern) for pattern in _WHATSAPP):
                yield from reader.left_out(name)
                continue
            file = path if PurePath(name).name == _WHATSAPP[0] and is_zipfile(path) else PurePath(name)
            titled = re.sub(r" ?\(\d+\)$", "", file.stem)  # which a second download has
            months_first = _months_first(text_lines(read_again))
            yield ImportedSession(titled, None, titled)
            yield from _chat(titled, _blocks(text_lines(read)), reader.zone, months_first=months_first)


def _blocks(lines: Iterable[Line]) -> Iterator[_Block]:
    block: _Block | None = None
    for line in lines:
        if begins := _LINE.match(line.text):
            yield from [block] if block else []
            block = _Block(line=line.number, begins=begins)
        if block:
            block.add(line, (begins[9] if begins else line.text).strip("\u200e\u200f"))
    yield from [block] if block else []


def _chat(name: str, blocks: Iterable[_Block], zone: ZoneInfo, *, months_first: bool) -> Iterator[Record]:
    repeats = Counter[str]()
    for block in blocks:
        place, sender = f"{name}:{block.line}", (block.begins[8] or "").strip("\u200e ~")
        if not (sender and block.text):
            yield Passed("notices")
            continue
        at, (*date, hour, minute, _) = _time(block.begins, zone, months_first=months_first), _numbers(block.begins)
        written = sorted(number % 100 for number in date), hour, minute
        key = sha256(f"{written} {sender} {block.text}".encode()).hexdigest()[:32]
        repeats[key] += 1
        yield _said([block.text], at, place, f"{key}-{repeats[key]}", sender, own=False)
        yield from block.damage(place)


def _numbers(begins: re.Match[str]) -> list[int]:
    """Three of the date, as they are written, then hour, minute and second by the 24-hour clock."""
    first, second, third, hour, *rest = (int(begins[group] or 0) for group in range(1, 7))
    return [first, second, third, hour % 12 + 12 * (begins[7][0] in "Pp") if begins[7] else hour, *rest]


def _time(begins: re.Match[str], zone: tzinfo, *, months_first: bool) -> datetime | None:
    first, second, third, hour, minute, second_of = _numbers(begins)
    year, month, day = (third, first, second) if months_first else (third, second, first)
    if first > 31:
        year, month, day = first, second, third
    with suppress(ValueError):
        return datetime(year + 2000 * (year < 100), month, day, hour, minute, second_of, tzinfo=zone)
    return None


def _months_first(lines: Iterable[Line]) -> bool:
    """Whether dates are written as in the USA: fewer are then invalid or go back in time, else the 12-hour clock says.

    A message can look like a further line, so no single date decides.
    """
    dated = [found for line in lines if (found := _LINE.match(line.text))]
    by_day, by_month = (_disorder([_time(each, UTC, months_first=order) for each in dated]) for order in (False, True))
    return by_month < by_day or (by_month == by_day and any(found[7] for found in dated))


def _disorder(times: Sequence[datetime | None]) -> int:
    valid = [time for time in times if time]
    return len(times) - len(valid) + sum(before > after for before, after in pairwise(valid))


def _is_whatsapp(path: Path) -> bool:
    named = path.is_dir() or is_zipfile(path) or any(path.match(name) for name in _WHATSAPP)
    return named and any(has_near_start(path, name, rb"\d[./-]\d{1,2}[./-]\d{1,4},?\s") for name in _WHATSAPP)


SOURCES = {
    "telegram": export("Telegram Desktop's result.json", _TELEGRAM, {"result.json": _telegram}, TELEGRAM_INTO),
    "slack": export("a Slack export, as a ZIP", rb'"ts":\s*"\d+\.\d', {"*/????-??-??.json": _slack}),
    "whatsapp": Source(
        "a chat that WhatsApp exported, as _chat.txt or ZIP", _is_whatsapp, _whatsapp, forgeable=True, files=_WHATSAPP
    ),
}
