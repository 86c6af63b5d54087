"""Claude's export: conversations with pasted texts and artifacts, projects with their documents, and memories."""

from collections.abc import Iterator
from typing import Literal

from pydantic import JsonValue

from gateway.domain.memory.imports import Damaged, ImportedMessage, ImportedSession, Passed, Record
from gateway.domain.principals import Label
from gateway.importers.records.files import ArrayItem, Reader
from gateway.importers.records.texts import (
    CONVERSATION_FILES,
    MAX_TITLE_CHARS,
    Fields,
    export,
    facts_in,
    fields_of,
    items_of,
    text_of,
    text_or_empty,
    time_of,
)

ROLES: dict[str, Literal["user", "assistant"]] = {"human": "user", "assistant": "assistant"}


def _conversation(place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
    conversation, messages = found.value, found.value.get("chat_messages")
    key = text_or_empty(conversation.get("uuid"))
    if not isinstance(messages, list) or not key:
        yield Damaged(place, f"item {found.number} is not a conversation of Claude; skipped")
        return
    where = f"{place} ({text_or_empty(conversation.get('name'))[:MAX_TITLE_CHARS] or key})"
    yield ImportedSession(key, time_of(conversation.get("created_at")), where)
    for message in messages:
        yield from _message(message, where)


def _message(message: JsonValue, place: str) -> Iterator[Record]:
    if not isinstance(message, dict) or (role := ROLES.get(text_or_empty(message.get("sender")))) is None:
        yield Damaged(place, "a message has no sender; skipped")
        return
    yield from (Passed("edits of artifacts") for call in _artifacts(message) if not call.get("content"))
    files, said = list(_files(message)), text_of(message.get("content")) or text_or_empty(message.get("text")).strip()
    made = [_artifact(call) for call in _artifacts(message) if call.get("content")]
    if not (text := "\n".join(filter(None, [said, *files, *made]))):
        yield Passed("empty")
        return
    at, key = time_of(message.get("created_at")), text_or_empty(message.get("uuid"))
    yield ImportedMessage(role, text, at, place, key, label=Label.KNOWN if files else Label.OWNER)


def _files(message: Fields) -> Iterator[str]:
    """Yield the names of the attachments, with the text that was pasted; others may have written it."""
    for file in (*items_of(message.get("attachments")), *items_of(message.get("files"))):
        name, text = text_or_empty(file.get("file_name"))[:100], text_or_empty(file.get("extracted_content"))
        yield "\n".join(filter(None, ["" if text and not name else f"[file: {name}]" if name else "[file]", text]))


def _artifacts(message: Fields) -> Iterator[Fields]:
    for part in items_of(message.get("content")):
        if part.get("type") == "tool_use" and part.get("name") == "artifacts":
            yield fields_of(part.get("input"))


def _artifact(call: Fields) -> str:
    title = text_or_empty(call.get("title"))[:100]
    return f"[artifact{f': {title}' if title else ''}]\n{text_or_empty(call.get('content'))}"


def _project(place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
    """Yield the documents as a conversation, and the instructions as proposals."""
    project, name = found.value, text_or_empty(found.value.get("name"))[:MAX_TITLE_CHARS]
    yield from facts_in(text_or_empty(project.get("description")), place, name)
    yield from facts_in(text_or_empty(project.get("prompt_template")), place, name, proposed=True)
    at = time_of(project.get("created_at"))
    yield ImportedSession(text_or_empty(project.get("uuid")) or place, at, f"{place} ({name})")
    for doc in items_of(project.get("docs")):
        text = f"[file: {text_or_empty(doc.get('filename'))[:100]}]\n{text_or_empty(doc.get('content'))}"
        made = time_of(doc.get("created_at")) or at
        yield ImportedMessage("user", text, made, place, text_or_empty(doc.get("uuid")), label=Label.KNOWN)


def _memories(place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
    projects = fields_of(found.value.get("project_memories"))
    for text in (found.value.get("conversations_memory"), *projects.values()):
        yield from facts_in(text_or_empty(text), place)


SOURCES = {
    "claude": export(
        "Claude's conversations.json, or the ZIP",
        b'"chat_messages"',
        {
            CONVERSATION_FILES: _conversation,
            "projects*.json": _project,
            "projects/*.json": _project,
            "memories*.json": _memories,
        },
    )
}
