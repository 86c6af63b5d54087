"""Claude's export: conversations.json, its folder or its ZIP."""

from collections.abc import Iterator
from typing import Literal

from pydantic import JsonValue

from gateway.domain.memory.imports import Damaged, ImportedMessage, ImportedSession, Passed, Record
from gateway.importers import Source
from gateway.importers.reading.conversations import begins_with, read_with, string, text_of, time_of
from gateway.importers.reading.objects import Object

FILES = "conversations*.json"
ROLES: dict[str, Literal["user", "assistant"]] = {"human": "user", "assistant": "assistant"}


def _conversation(place: str, found: Object) -> Iterator[Record]:
    conversation, messages = found.value, found.value.get("chat_messages")
    key = string(conversation.get("uuid"))
    if not isinstance(messages, list) or not key:
        yield Damaged(place, f"item {found.number} is not a conversation of Claude; skipped")
        return
    where = f"{place} ({string(conversation.get('name'))[:60] or key})"
    yield ImportedSession(key, time_of(conversation.get("created_at")), where)
    for message in messages:
        yield _message(message, where)


def _message(message: JsonValue, place: str) -> Record:
    if not isinstance(message, dict) or (role := ROLES.get(string(message.get("sender")))) is None:
        return Damaged(place, "a message has no sender; skipped")
    texts = [text_of(message.get("content")) or string(message.get("text")).strip(), *_files(message)]
    text = "\n".join(text for text in texts if text)
    if not text:
        return Passed("empty")
    return ImportedMessage(role, text, time_of(message.get("created_at")), place, string(message.get("uuid")))


def _files(message: dict[str, JsonValue]) -> Iterator[str]:
    """Yield the names of what was attached."""
    for each in ("attachments", "files"):
        listed = message.get(each)
        for file in listed if isinstance(listed, list) else ():
            name = string(file.get("file_name")) if isinstance(file, dict) else ""
            yield f"[file: {name[:100]}]" if name else "[file]"


source = Source(
    "Claude's conversations.json, or the ZIP",
    lambda path: begins_with(path, FILES, b'"chat_messages"'),
    read_with(FILES, _conversation),
)
