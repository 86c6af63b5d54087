"""ChatGPT's export: conversations.json, its folder or its ZIP; each conversation's branch that was shown last."""

from collections.abc import Iterator

from pydantic import JsonValue

from gateway.domain.memory.imports import Damaged, ImportedMessage, ImportedSession, Passed, Record
from gateway.importers import Source
from gateway.importers.records.files import ArrayItem
from gateway.importers.records.texts import (
    CONVERSATION_FILES,
    MAX_TITLE_CHARS,
    ROLES,
    conversation_reader,
    has_key_near_start,
    text_of,
    text_or_empty,
    time_of,
)

TEXTS = ("text", "multimodal_text")

Fields = dict[str, JsonValue]


def _conversation(place: str, found: ArrayItem) -> Iterator[Record]:
    conversation, mapping = found.value, found.value.get("mapping")
    key = text_or_empty(conversation.get("conversation_id")) or text_or_empty(conversation.get("id"))
    if not isinstance(mapping, dict) or not key:
        yield Damaged(place, f"item {found.number} is not a conversation of ChatGPT; skipped")
        return
    where = f"{place} ({text_or_empty(conversation.get('title'))[:MAX_TITLE_CHARS] or key})"
    yield ImportedSession(key, time_of(conversation.get("create_time")), where)
    for node, message in _branch(mapping, text_or_empty(conversation.get("current_node"))):
        yield _message(node, message, where)


def _branch(mapping: Fields, last: str) -> list[tuple[str, Fields]]:
    """The messages of the branch that ends with `last`, the oldest first, each with its id."""
    node: JsonValue = last if last in mapping else next(reversed(mapping), None)
    branch: dict[str, Fields] = {}
    while isinstance(node, str) and node not in branch and isinstance(found := mapping.get(node), dict):
        message = found.get("message")
        branch[node] = message if isinstance(message, dict) else {}
        node = found.get("parent")
    return [(node, message) for node, message in reversed(branch.items()) if message]


def _message(node: str, message: Fields, place: str) -> Record:
    author, content, metadata = (_fields(message.get(name)) for name in ("author", "content", "metadata"))
    role = ROLES.get(text_or_empty(author.get("role")))
    if role is None or message.get("recipient", "all") != "all" or content.get("content_type") not in TEXTS:
        return Passed("of the system or a tool")
    if metadata.get("is_visually_hidden_from_conversation"):
        return Passed("of the system or a tool")
    text = text_of(content.get("parts"))
    if not text:
        return Passed("empty")
    return ImportedMessage(role, text, time_of(message.get("create_time")), place, node)


def _fields(value: JsonValue) -> Fields:
    return value if isinstance(value, dict) else {}


source = Source(
    "ChatGPT's conversations.json, or the ZIP",
    lambda path: has_key_near_start(path, CONVERSATION_FILES, b'"mapping"'),
    conversation_reader(CONVERSATION_FILES, _conversation),
)
