"""ChatGPT's export: each conversation's branch that was shown last, with its canvases; what it had stored about you."""

import json
from collections.abc import Iterator

from pydantic import JsonValue

from gateway.domain.memory.imports import Damaged, ImportedMemory, ImportedMessage, ImportedSession, Passed, Record
from gateway.domain.memory.memories import Category
from gateway.importers.records.files import ArrayItem, Reader
from gateway.importers.records.texts import (
    CONVERSATION_FILES,
    MAX_TITLE_CHARS,
    ROLES,
    Fields,
    export,
    fields_of,
    text_of,
    text_or_empty,
    time_of,
)

TEXTS = ("text", "multimodal_text")
CANVASES = ("canmore.create_textdoc", "canmore.update_textdoc")


def _conversation(place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
    conversation, mapping = found.value, found.value.get("mapping")
    key = text_or_empty(conversation.get("conversation_id")) or text_or_empty(conversation.get("id"))
    if not isinstance(mapping, dict) or not key:
        yield Damaged(place, f"item {found.number} is not a conversation of ChatGPT; skipped")
        return
    where = f"{place} ({text_or_empty(conversation.get('title'))[:MAX_TITLE_CHARS] or key})"
    yield ImportedSession(key, time_of(conversation.get("create_time")), where)
    for node, message in _branch(mapping, text_or_empty(conversation.get("current_node"))):
        yield from _message(node, message, where)


def _branch(mapping: Fields, last: str) -> list[tuple[str, Fields]]:
    """The messages of the branch that ends with `last`, the oldest first, each with its id."""
    node: JsonValue = last if last in mapping else next(reversed(mapping), None)
    branch: dict[str, Fields] = {}
    while isinstance(node, str) and node not in branch and isinstance(found := mapping.get(node), dict):
        message = found.get("message")
        branch[node] = message if isinstance(message, dict) else {}
        node = found.get("parent")
    return [(node, message) for node, message in reversed(branch.items()) if message]


def _message(node: str, message: Fields, place: str) -> Iterator[Record]:
    author, content = (fields_of(message.get(name)) for name in ("author", "content"))
    role, to = ROLES.get(text_or_empty(author.get("role"))), message.get("recipient", "all")
    hidden = fields_of(message.get("metadata")).get("is_visually_hidden_from_conversation")
    at, text = time_of(message.get("create_time")), text_of(content.get("parts")) or text_or_empty(content.get("text"))
    if content.get("content_type") == "user_editable_context":
        yield from _instructions(content, place)
    elif to == "bio" and text:
        yield ImportedMemory(text, place, at=at)
    elif to in CANVASES:
        canvas = _canvas(text)
        yield ImportedMessage("assistant", canvas, at, place, node) if canvas else Passed("edits of canvases")
    elif role is None or to != "all" or content.get("content_type") not in TEXTS or hidden:
        yield Passed("of the system or a tool")
    else:
        yield ImportedMessage(role, text, at, place, node) if text else Passed("empty")


def _instructions(content: Fields, place: str) -> Iterator[Record]:
    """Yield the custom instructions, of which each conversation has a copy."""
    for name in ("user_profile", "user_instructions"):
        if text := text_or_empty(content.get(name)).strip():
            yield ImportedMemory(text, place, Category.PREFERENCE, proposed=True)


def _canvas(text: str) -> str:
    """The text of a canvas, new or rewritten as a whole; empty for an edit of a part."""
    try:
        call = fields_of(json.loads(text))
    except ValueError:
        return ""
    updates = call.get("updates")
    edit = fields_of(updates[0] if isinstance(updates, list) and len(updates) == 1 else None)
    whole = call.get("content") or (edit.get("replacement") if edit.get("pattern") == ".*" else "")
    title = text_or_empty(call.get("name"))[:100]
    return f"[canvas{f': {title}' if title else ''}]\n{whole}" if isinstance(whole, str) and whole else ""


SOURCES = {
    "chatgpt": export("ChatGPT's conversations.json, or the ZIP", b'"mapping"', {CONVERSATION_FILES: _conversation})
}
