"""Exports of messengers, chat programs and memories as JSON: one row of `SOURCES` each."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Literal

from pydantic import JsonValue

from gateway.domain.memory.imports import ImportedMemory, ImportedMessage, ImportedSession, Passed, Record
from gateway.domain.principals import Label
from gateway.importers.records.files import ArrayItem, Reader
from gateway.importers.records.texts import (
    ANY,
    ROLES,
    Fields,
    export,
    facts_in,
    fields_of,
    items_of,
    text_of,
    text_or_empty,
    time_of,
)
from gateway.ingest.text import html_text, parsed_html


@dataclass(frozen=True, slots=True)
class _Chats:
    """A format of chats with a model, by the keys of its objects; "a.b" is the key b of the object a.

    `chat` has the keys of the id, title, time and messages, `message` those of the id, role and time of one.
    """

    chat: tuple[str, str, str, str]
    message: tuple[str, str, str]
    texts: tuple[str, ...]
    roles: Mapping[str, Literal["user", "assistant"]]

    def parse(self, place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
        """Yield a conversation."""
        id, title, at, messages = (_at(found.value, key) for key in self.chat)
        key = str(id or place)
        where = f"{place} ({text_or_empty(title) or key})"
        yield ImportedSession(key, time_of(at), where)
        for message in _nested(items_of(messages)):
            own_key, said_by, said_at = (_at(message, key) for key in self.message)
            text = next(filter(None, (text_of(_at(message, key)) for key in self.texts)), "")
            if (role := self.roles.get(str(said_by))) and text:
                yield ImportedMessage(role, text, time_of(said_at), where, text_or_empty(own_key))
            else:
                yield Passed("empty" if role else "of the system or a tool")


def _at(fields: Fields, path: str) -> JsonValue:
    value: JsonValue = fields
    for name in path.split("."):
        value = fields_of(value).get(name)
    return value


def _nested(messages: list[Fields]) -> Iterator[Fields]:
    left = messages[::-1]
    while left:
        yield (message := left.pop())
        left += items_of(message.get("children"))[::-1]


_OPEN_WEBUI = _Chats(("id", "title", "created_at", "chat.messages"), ("id", "role", "timestamp"), ("content",), ROLES)
_LIBRECHAT = _Chats(
    ("conversationId", "title", "exportAt", "messages"),
    ("messageId", "isCreatedByUser", "createdAt"),
    ("text", "content"),
    {"True": "user", "False": "assistant"},
)
_LETTA = _Chats(("id", "name", "created_at", "messages"), ("id", "role", "created_at"), ("content", "text"), ROLES)


def _letta(place: str, found: ArrayItem, reader: Reader) -> Iterator[Record]:
    """Yield the blocks of an agent's memory, its persona as a proposal, and its messages."""
    value = found.value
    for block in (*items_of(value.get("blocks")), *items_of(value.get("core_memory"))):
        label = text_or_empty(block.get("label"))
        yield from facts_in(text_or_empty(block.get("value")), place, label, proposed=label == "persona")
    for name in ("tools", "files", "sources", "groups", "mcp_servers"):
        yield from (Passed(name) for _ in items_of(value.get(name)))
    for agent in items_of(value.get("agents")) or [value]:
        for record in _LETTA.parse(place, ArrayItem(found.number, found.line, agent), reader):
            yield from [_unpacked(record)] if isinstance(record, ImportedMessage) else [record]


def _unpacked(message: ImportedMessage) -> Record:
    """The message, which Letta packs into JSON with its time."""
    try:
        packed = fields_of(json.loads(message.text))
    except ValueError:
        return message
    text = text_or_empty(packed.get("message"))
    if not text or packed.get("type", "user_message") != "user_message":
        return Passed("of the system or a tool")
    return ImportedMessage(message.role, text, message.at or time_of(packed.get("time")), message.place, message.key)


def _mem0(place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
    listed = found.value.get("results") or found.value.get("memories")
    for each in items_of(listed) or [found.value]:
        text, tags = text_or_empty(each.get("memory")) or text_or_empty(each.get("text")), each.get("categories")
        names = tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()
        yield ImportedMemory(text, place, tags=names, at=time_of(each.get("created_at"))) if text else Passed("empty")


def _gemini(place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
    """Yield a prompt and its answer; those of a day are a conversation."""
    said, time = text_or_empty(found.value.get("title")), text_or_empty(found.value.get("time"))
    answers = [text_or_empty(item.get("html")) for item in items_of(found.value.get("safeHtmlItem"))]
    if not said or not (at := time_of(time)) or not (answers or said.startswith("Prompted ")):
        yield Passed("activity without words")
        return
    yield ImportedSession(time[:10], at, f"{place} ({time[:10]})")
    yield ImportedMessage("user", said.removeprefix("Prompted "), at, place, f"{time} prompt")
    if answer := "\n".join(html_text(parsed_html(html)) for html in answers):
        yield ImportedMessage("assistant", answer, at, place, f"{time} answer")


TELEGRAM_INTO = re.compile(rb'\{(?:(?:"(?:[^"\\]|\\.)*"|[^"{}\[\]])*"messages":\s*\[|\s*"about":)')
"""Objects that are too large to be held: a chat, up to its messages, and the list of chats."""


def _telegram(place: str, found: ArrayItem, reader: Reader) -> Iterator[Record]:
    """Yield a chat or a message of the chat before; what the person sent is theirs, by its id, all else is others'."""
    value = found.value
    if isinstance(value.get("messages"), list):
        yield ImportedSession(str(value.get("id")), None, f"{place} ({value.get('name') or 'Saved Messages'})")
        return
    if value.get("type") != "message":
        yield Passed("notices, contacts and settings")
        return
    text = "".join(map(_telegram_part, each if isinstance(each := value.get("text"), list) else [each]))
    kind = text_or_empty(value.get("media_type")) or next((name for name in ("photo", "file") if name in value), "")
    words = "\n".join(filter(None, [f"[{kind}]" if kind else "", text]))
    if not words:
        yield Passed("empty")
        return
    seconds = text_or_empty(value.get("date_unixtime"))
    at = time_of(float(seconds)) if seconds.isdecimal() else time_of(value.get("date"))
    forwarded = text_or_empty(value.get("forwarded_from"))
    own = f"telegram:{text_or_empty(value.get('from_id')).removeprefix('user')}" in reader.own and not forwarded
    yield _said(words, at, place, str(value.get("id")), forwarded or text_or_empty(value.get("from")), own=own)


def _telegram_part(part: JsonValue) -> str:
    return part if isinstance(part, str) else text_or_empty(fields_of(part).get("text"))


_SLACK_KINDS = {"", "bot_message", "thread_broadcast", "me_message", "file_share"}


def _slack(place: str, found: ArrayItem, reader: Reader) -> Iterator[Record]:
    """Yield a message; a folder is a conversation."""
    value, user = found.value, text_or_empty(found.value.get("user"))
    if value.get("type") != "message" or text_or_empty(value.get("subtype")) not in _SLACK_KINDS:
        yield Passed("notices")
        return
    profile = fields_of(value.get("user_profile"))
    names = (profile.get("display_name"), profile.get("real_name"), value.get("username"), user)
    files = [f"[file: {text_or_empty(file.get('name'))[:100]}]" for file in items_of(value.get("files"))]
    text, stamp = "\n".join([*filter(None, [text_or_empty(value.get("text"))]), *files]), text_or_empty(value.get("ts"))
    if not text:
        yield Passed("empty")
        return
    at = time_of(float(stamp)) if re.fullmatch(r"\d+(\.\d+)?", stamp) else None
    chat = PurePath(place).parent.name
    yield ImportedSession(chat, at, f"{place} (#{chat})")
    sender = next((name for name in names if isinstance(name, str) and name), "")
    yield _said(text, at, place, f"{stamp} {user}", sender, own=f"slack:{user}" in reader.own)


def _said(text: str, at: datetime | None, place: str, key: str, sender: str, *, own: bool) -> ImportedMessage:
    """A message of a person: the one whose data it is, or another, whose words are untrusted."""
    if own:
        return ImportedMessage("user", text, at, place, key)
    return ImportedMessage("user", f"{sender or 'Somebody'}: {text}", at, place, key, Label.UNTRUSTED)


SOURCES = {
    "telegram": export(
        "Telegram Desktop's result.json",
        rb'"date_unixtime"|"personal_information"',
        {"result.json": _telegram},
        TELEGRAM_INTO,
    ),
    "slack": export("a Slack export, as a ZIP", rb'"ts":\s*"\d+\.\d', {"*/????-??-??.json": _slack}),
    "gemini": export("Gemini's activity of Google Takeout, as JSON", b'"Gemini Apps"', {"My*Activity.json": _gemini}),
    "open-webui": export("Open WebUI's chats", rb'"chat":\s*\{', {ANY: _OPEN_WEBUI.parse}),
    "librechat": export("a conversation of LibreChat", b'"isCreatedByUser"', {ANY: _LIBRECHAT.parse}),
    "letta": export("a Letta agent (.af)", b'"(agent_type|core_memory|block_ids)"', {"*.af": _letta}),
    "mem0": export("mem0's memories as JSON", rb'"memory":\s*"', {ANY: _mem0}),
}
