"""Claude's export: conversations.json, its folder or its ZIP."""

from collections.abc import Iterator
from typing import Literal

from pydantic import JsonValue

from gateway.domain.memory.imports import Damaged, ImportedMessage, ImportedSession, Passed, Record
from gateway.importers import Source
from gateway.importers.records.files import ArrayItem
from gateway.importers.records.texts import (
    CONVERSATION_FILES,
    MAX_TITLE_CHARS,
    conversation_reader,
    has_key_near_start,
    text_of,
    text_or_empty,
    time_of,
)

ROLES: dict[str, Literal["user", "assistant"]] = {"human": "user", "assistant": "assistant"}


def _conversation(place: str, found: ArrayItem) -> Iterator[Record]:
    conversation, messages = found.value, found.value.get("chat_messages")
    key = text_or_empty(conversation.get("uuid"))
    if not isinstance(messages, list) or not key:
        yield Damaged(place, f"item {found.number} is not a conversation of Claude; skipped")
        return
    where = f"{place} ({text_or_empty(conversation.get('name'))[:MAX_TITLE_CHARS] or key})"
    yield ImportedSession(key, time_of(conversation.get("created_at")), where)
    for message in messages:
        yield _message(message, where)


def _message(message: JsonValue, place: str) -> Record:
    if not isinstance(message, dict) or (role := ROLES.get(text_or_empty(message.get("sender")))) is None:
        return Damaged(place, "a message has no sender; skipped")
    texts = [text_of(message.get("content")) or text_or_empty(message.get("text")).strip(), *_files(message)]
    text = "\n".join(text for text in texts if text)
    if not text:
        return Passed("empty")
    return ImportedMessage(role, text, time_of(message.get("created_at")), place, text_or_empty(message.get("uuid")))


def _files(message: dict[str, JsonValue]) -> Iterator[str]:
    """Yield the names of the attachments."""
    for each in ("attachments", "files"):
        listed = message.get(each)
        for file in listed if isinstance(listed, list) else ():
            name = text_or_empty(file.get("file_name")) if isinstance(file, dict) else ""
            yield f"[file: {name[:100]}]" if name else "[file]"


source = Source(
    "Claude's conversations.json, or the ZIP",
    lambda path: has_key_near_start(path, CONVERSATION_FILES, b'"chat_messages"'),
    conversation_reader(CONVERSATION_FILES, _conversation),
)
