"""Exports of programs for chats with models, and of what they remember: one row of `SOURCES` each."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pydantic import JsonValue

from gateway.domain.json import fields_of, json_or_text
from gateway.domain.memory.imports import Damaged, ImportedMemory, ImportedMessage, ImportedSession, Passed, Record
from gateway.domain.memory.memories import Category
from gateway.domain.principals import Label
from gateway.importers.records.files import ArrayItem, Reader
from gateway.importers.records.texts import (
    ANY,
    MAX_TITLE_CHARS,
    NOT_SAID,
    Fields,
    Parser,
    export,
    facts_in,
    items_of,
    said,
    text_of,
    text_or_empty,
    time_of,
)
from gateway.ingest.text import html_text, parsed_html


@dataclass(frozen=True, slots=True)
class _Chats:
    """A format of chats, by the keys of the id, title, time and messages; "a.b" is the key b of the object a.

    `read` yields the records of a message, given the place of its chat.
    """

    program: str
    keys: tuple[str, str, str, str]
    read: Callable[[Fields, str], Iterable[Record]]
    messages: Callable[[Fields, JsonValue], Iterable[Fields]] = lambda _chat, listed: _nested(listed)

    def parse(self, place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
        """Yield a conversation."""
        id, title, at, listed = (_at(found.value, key) for key in self.keys)
        if not (id := id or found.value.get("id")) or not isinstance(listed, list | dict):
            yield Damaged(place, f"item {found.number} is not a conversation of {self.program}; skipped")
            return
        where = f"{place} ({text_or_empty(title)[:MAX_TITLE_CHARS] or id})"
        yield ImportedSession(str(id), time_of(at), where)
        for message in self.messages(found.value, listed):
            yield from self.read(message, where)


def _at(fields: Fields, path: str) -> JsonValue:
    name, _, inner = path.partition(".")
    return _at(fields_of(fields.get(name)), inner) if inner else fields.get(name)


def _nested(messages: JsonValue) -> Iterator[Fields]:
    listed = messages if isinstance(messages, list) else fields_of(messages).values()
    left = list(map(fields_of, listed))[::-1]
    while left:
        yield (message := left.pop())
        left += items_of(message.get("children"))[::-1]


def _plain(id: str, role: str, at: str, *texts: str) -> Callable[[Fields, str], Iterable[Record]]:
    """Reads messages that are text, by these keys."""

    def read(message: Fields, place: str) -> Iterable[Record]:
        text = next(filter(None, (text_of(message.get(name)) for name in texts)), "")
        return [said(str(message.get(role)), text, message.get(at), place, message.get(id), Label.OWNER)]

    return read


def _branch(chat: Fields, listed: JsonValue) -> list[Fields]:
    """The messages of ChatGPT's branch that was shown last, the oldest first, each with its node's id; then the others.

    Those are only to be counted.
    """
    mapping, last, branch = fields_of(listed), text_or_empty(chat.get("current_node")), dict[str, Fields]()
    node: JsonValue = last if last in mapping else next(reversed(mapping), None)
    while isinstance(node, str) and node not in branch and isinstance(found := mapping.get(node), dict):
        branch[node] = fields_of(found.get("message"))
        node = found.get("parent")
    others = [node for node, each in mapping.items() if node not in branch and fields_of(each).get("message")]
    shown = ({**message, "id": node} for node, message in reversed(branch.items()) if message)
    return [*shown, *[_OF_ANOTHER_BRANCH] * len(others)]


_OF_ANOTHER_BRANCH: Fields = {"recipient": "nobody"}


def _chatgpt(message: Fields, place: str) -> Iterator[Record]:
    """Yield a message, a canvas, what was remembered, or the custom instructions, which each conversation has."""
    content, at, key = fields_of(message.get("content")), message.get("create_time"), message.get("id")
    text, kind = text_of(content.get("parts")) or text_or_empty(content.get("text")), content.get("content_type")
    to, hidden = message.get("recipient", "all"), _at(message, "metadata.is_visually_hidden_from_conversation")
    if kind == "user_editable_context":
        for wish in (text_or_empty(content.get(name)).strip() for name in ("user_profile", "user_instructions")):
            yield from [ImportedMemory(wish, place, Label.OWNER, Category.PREFERENCE, proposed=True)] if wish else []
    elif to == "bio" and text:
        yield ImportedMemory(text, place, Label.OWNER, at=time_of(at))
    elif to in ("canmore.create_textdoc", "canmore.update_textdoc"):
        canvas = said("assistant", _canvas(text), at, place, key, Label.OWNER)
        yield canvas if isinstance(canvas, ImportedMessage) else Passed("edits of canvases")
    elif to == "all" and kind in ("text", "multimodal_text") and not hidden:
        yield said(text_or_empty(_at(message, "author.role")), text, at, place, key, Label.OWNER)
    else:
        yield Passed("messages of other branches") if message is _OF_ANOTHER_BRANCH else NOT_SAID


def _canvas(text: str) -> str:
    """The text of a canvas, new or rewritten as a whole; empty for an edit of a part."""
    call = fields_of(json_or_text(text))
    [edit, *others] = items_of(call.get("updates")) or [{}]
    whole = call.get("content") or (edit.get("replacement") if edit.get("pattern") == ".*" and not others else "")
    return _titled("canvas", call.get("name"), whole) if isinstance(whole, str) and whole else ""


def _titled(kind: str, name: JsonValue, text: JsonValue) -> str:
    title = text_or_empty(name)[:100]
    return f"[{kind}{f': {title}' if title else ''}]\n{text_or_empty(text)}"


def _claude(message: Fields, place: str) -> Iterator[Record]:
    """Yield a message with its artifacts and the texts that were pasted, which others may have written."""
    if (sender := text_or_empty(message.get("sender"))) not in ("human", "assistant"):
        yield Damaged(place, "a message has no sender; skipped")
        return
    parts = items_of(message.get("content"))
    made = [fields_of(part.get("input")) for part in parts if (part.get("type"), part.get("name")) == _ARTIFACT]
    yield from (Passed("edits of artifacts") for call in made if not call.get("content"))
    files = list(map(_file, (*items_of(message.get("attachments")), *items_of(message.get("files")))))
    words = text_of(message.get("content")) or text_or_empty(message.get("text")).strip()
    artifacts = [_titled("artifact", call.get("title"), call["content"]) for call in made if call.get("content")]
    text = "\n".join(filter(None, [words, *files, *artifacts]))
    label = Label.KNOWN if files else Label.OWNER
    yield said(sender, text, message.get("created_at"), place, message.get("uuid"), label)


_ARTIFACT = ("tool_use", "artifacts")


def _file(file: Fields) -> str:
    name, text = text_or_empty(file.get("file_name"))[:100], text_or_empty(file.get("extracted_content"))
    return "\n".join(filter(None, ["" if text and not name else f"[file: {name}]" if name else "[file]", text]))


def _project(place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
    """Yield the documents as a conversation, and the instructions as proposals."""
    project, name = found.value, text_or_empty(found.value.get("name"))[:MAX_TITLE_CHARS]
    yield from facts_in(text_or_empty(project.get("description")), place, name)
    yield from facts_in(text_or_empty(project.get("prompt_template")), place, name, proposed=True)
    begun = project.get("created_at")
    yield ImportedSession(text_or_empty(project.get("uuid")) or place, time_of(begun), f"{place} ({name})")
    for doc in items_of(project.get("docs")):
        text = f"[file: {text_or_empty(doc.get('filename'))[:100]}]\n{text_or_empty(doc.get('content'))}"
        yield said("user", text, doc.get("created_at") or begun, place, doc.get("uuid"), Label.KNOWN)


def _memories(place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
    projects = fields_of(found.value.get("project_memories"))
    for text in (found.value.get("conversations_memory"), *projects.values()):
        yield from facts_in(text_or_empty(text), place)


def _letta(place: str, found: ArrayItem, reader: Reader) -> Iterator[Record]:
    """Yield the blocks of an agent's memory, its persona as a proposal, and its messages."""
    value = found.value
    for block in (*items_of(value.get("blocks")), *items_of(value.get("core_memory"))):
        label = text_or_empty(block.get("label"))
        yield from facts_in(text_or_empty(block.get("value")), place, label, proposed=label == "persona")
    for name in ("tools", "files", "sources", "groups", "mcp_servers"):
        yield from (Passed(name) for _ in items_of(value.get(name)))
    for agent in items_of(value.get("agents")) or [value]:
        agent_item = ArrayItem(found.number, found.line, {"id": place, "messages": [], **agent})
        for record in _LETTA.parse(place, agent_item, reader):
            yield _unpacked(record) if isinstance(record, ImportedMessage) else record


def _unpacked(message: ImportedMessage) -> Record:
    """The message, which Letta packs into JSON with its time."""
    try:
        packed = fields_of(json.loads(message.text))
    except (ValueError, RecursionError):
        return message
    text = text_or_empty(packed.get("message"))
    if not text or packed.get("type", "user_message") != "user_message":
        return NOT_SAID
    return replace(message, text=text, at=message.at or time_of(packed.get("time")))


def _mem0(place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
    listed = found.value.get("results") or found.value.get("memories")
    for each in items_of(listed) or [found.value]:
        text, tags = text_or_empty(each.get("memory")) or text_or_empty(each.get("text")), each.get("categories")
        names = tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()
        at = time_of(each.get("created_at"))
        yield ImportedMemory(text, place, Label.OWNER, tags=names, at=at) if text else Passed("empty")


def _gemini(place: str, found: ArrayItem, _reader: Reader) -> Iterator[Record]:
    """Yield a prompt and its answer; those of a day are a conversation."""
    asked, time = text_or_empty(found.value.get("title")), text_or_empty(found.value.get("time"))
    answers = [text_or_empty(item.get("html")) for item in items_of(found.value.get("safeHtmlItem"))]
    if not asked or not (at := time_of(time)) or not (answers or asked.startswith("Prompted ")):
        yield Passed("activity without words")
        return
    yield ImportedSession(time[:10], at, f"{place} ({time[:10]})")
    yield said("user", asked.removeprefix("Prompted "), time, place, f"{time} prompt", Label.OWNER)
    if answer := "\n".join(html_text(parsed_html(html)) for html in answers):
        yield said("assistant", answer, time, place, f"{time} answer", Label.OWNER)


_CONVERSATIONS = "conversations*.json"
_CHATGPT = _Chats("ChatGPT", ("conversation_id", "title", "create_time", "mapping"), _chatgpt, _branch)
_CLAUDE = _Chats("Claude", ("uuid", "name", "created_at", "chat_messages"), _claude)
_CLAUDE_FILES: dict[str, Parser] = {
    _CONVERSATIONS: _CLAUDE.parse,
    **dict.fromkeys(("projects*.json", "projects/*.json"), _project),
    "memories*.json": _memories,
}
_LETTA_MESSAGE = _plain("id", "role", "created_at", "content", "text")
_LETTA = _Chats("Letta", ("id", "name", "created_at", "messages"), _LETTA_MESSAGE)
_LIBRECHAT_MESSAGE = _plain("messageId", "isCreatedByUser", "createdAt", "text", "content")
_LIBRECHAT = _Chats("LibreChat", ("conversationId", "title", "exportAt", "messages"), _LIBRECHAT_MESSAGE)
_OPEN_WEBUI_MESSAGE = _plain("id", "role", "timestamp", "content")
_OPEN_WEBUI = _Chats("Open WebUI", ("id", "title", "created_at", "chat.messages"), _OPEN_WEBUI_MESSAGE)
SOURCES = {
    "chatgpt": export("ChatGPT's conversations.json, or the ZIP", b'"mapping"', {_CONVERSATIONS: _CHATGPT.parse}),
    "claude": export("Claude's conversations.json, or the ZIP", b'"chat_messages"', _CLAUDE_FILES),
    "gemini": export("Gemini's activity of Google Takeout, as JSON", b'"Gemini Apps"', {"My*Activity.json": _gemini}),
    "open-webui": export("Open WebUI's chats", rb'"chat":\s*\{', {ANY: _OPEN_WEBUI.parse}),
    "librechat": export("a conversation of LibreChat", b'"isCreatedByUser"', {ANY: _LIBRECHAT.parse}),
    "letta": export("a Letta agent (.af)", b'"(agent_type|core_memory|block_ids)"', {"*.af": _letta}),
    "mem0": export("mem0's memories as JSON", rb'"memory":\s*"', {ANY: _mem0}),
}
