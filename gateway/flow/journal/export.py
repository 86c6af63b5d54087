"""Conversations and memories as files: Markdown to read, JSON for programs. Untrusted text stays marked."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from typing import Literal
from zipfile import ZIP_DEFLATED, ZipFile

from gateway.agent.memory.remember import Remembering
from gateway.domain.ids import PrincipalId
from gateway.domain.json import Json
from gateway.domain.memory.memories import ALL_MEMORIES, Kind, Memory, MemoryFilter
from gateway.domain.principals import Label
from gateway.domain.text.marks import quoted
from gateway.domain.text.texts import json_text, one_line
from gateway.memory.wording import memory_json
from gateway.store.connection.pool import Database
from gateway.store.files import attachments
from gateway.store.memory import memories
from gateway.store.memory.memories import MemorySource
from gateway.store.transcript import conversations, imports, messages
from gateway.store.transcript.conversations import Conversation
from gateway.store.transcript.imports import ImportOrigin
from gateway.store.transcript.messages import MessageRow

Format = Literal["markdown", "json"]
LISTED_KINDS = (Kind.MEMORY, Kind.SUMMARY)
PAGE_OF_CONVERSATIONS, PAGE_OF_MEMORIES = 100, 1_000
MAX_NAME_BYTES = 180
"""The day and title in a transcript's file name; with the id, file systems take 255."""

TRUST = {Label.OWNER: "owner", Label.KNOWN: "known", Label.UNTRUSTED: "not verified"}
_WHO = {"user": "You", "assistant": "Agent", "tool_intent": "Tool call", "tool_result": "Tool result"}


def export(of: Conversation, rows: Sequence[MessageRow], form: Format) -> str:
    """The whole conversation; `rows` are its entries, with their files."""
    if form == "markdown":
        return _markdown(of, rows)
    return json.dumps({**_about(of), "messages": [*map(_entry, rows)]}, ensure_ascii=False, indent=2)


def lines(of: Conversation, rows: Sequence[MessageRow]) -> str:
    """The same as JSON lines: first the facts about the conversation, then a line for each entry."""
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in (_about(of), *map(_entry, rows)))


def file_name(of: Conversation, form: Format) -> str:
    """Its day and title, in characters that every system accepts."""
    words = "".join(char if char.isalnum() else " " for char in of.title[:60]).lower().split()
    return f"{'-'.join([f'{of.started_at:%Y-%m-%d}', *words])}.{'md' if form == 'markdown' else 'json'}"


def _markdown(of: Conversation, rows: Sequence[MessageRow]) -> str:
    about = f"{_at(of.started_at)} to {_at(of.last_at)}, {of.channel}, session {of.id}"
    return "\n\n".join([f"# {one_line(of.title, 200)}", about, *map(_section, rows)]) + "\n"


def _section(row: MessageRow) -> str:
    """Only the owner's text is unquoted, so that no other text can imitate a heading."""
    trust = TRUST[row.label] if row.label else ""
    head = " · ".join(filter(None, (_WHO[row.kind], one_line(row.tool or "", 60), _at(row.sent_at), trust)))
    text = quoted(row.text) if row.label or row.tool else row.text
    files = "\n".join(f"- File: {one_line(file.name or file.path, 200)}" for file in row.attached)
    return "\n\n".join(filter(None, (f"### {head}", text, files)))


def _about(of: Conversation) -> dict[str, Json]:
    return {
        "session": str(of.id),
        "branch_of": str(of.parent) if of.parent else None,
        "title": of.title,
        "channel": of.channel,
        "agent": of.agent,
        "trust": TRUST[of.label],
        "started_at": of.started_at.isoformat(),
        "last_at": of.last_at.isoformat(),
    }


def _entry(row: MessageRow) -> Json:
    return {
        "id": row.id,
        "at": row.sent_at.isoformat(),
        "kind": row.kind,
        "sender": row.sender,
        "origin": row.origin,
        "trust": TRUST[row.label],
        "text": row.text,
        "tool": row.tool,
        "call": row.call_id,
        "files": [{"name": file.name, "mime": file.mime, "path": file.path} for file in row.attached],
    }


def _at(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


async def archive(database: Database, person: PrincipalId, clean: Callable[[str], str]) -> tuple[bytes, str]:
    """A person's memories and conversations as a ZIP file, without stored secrets, and a line that counts them."""
    packed, held = BytesIO(), 0
    with ZipFile(packed, "w", ZIP_DEFLATED) as into:
        rows = await database.run(lambda tx: memory_lines(Remembering(tx, person, ALL_MEMORIES, clean)))
        into.writestr("memories.jsonl", "".join(f"{row}\n" for row in rows))
        async for of, said in transcripts(database, person):
            held += 1
            for name, text in transcript_files(of, said, clean):
                into.writestr(name, clean(text))
    return packed.getvalue(), f"{len(rows)} memories and {held} conversations"


async def transcripts(database: Database, person: PrincipalId) -> AsyncIterator[tuple[Conversation, list[MessageRow]]]:
    """Yield a person's chats and automated runs, one in memory at a time.

    A conversation that goes on meanwhile moves to the front, so that others are listed twice and none is missed.
    """
    listed: dict[str, Conversation] = {}
    for unattended in (False, True):
        offset, page = 0, partial(conversations.listed, principal=person, limit=PAGE_OF_CONVERSATIONS)
        while found := await database.read(partial(page, offset=offset, unattended=unattended)):
            listed |= {str(of.id): of for of in found}
            offset += PAGE_OF_CONVERSATIONS
    for of in listed.values():
        async with database.connection() as conn:
            rows = await attachments.with_attachments(conn, await messages.told_until(conn, of.id))
        yield of, rows


def transcript_files(of: Conversation, rows: list[MessageRow], clean: Callable[[str], str]) -> list[tuple[str, str]]:
    """A transcript as Markdown and as JSON lines, each after its name."""
    titled = replace(of, title=clean(of.title))
    words = file_name(titled, "markdown").removesuffix(".md").encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    name = f"transcripts/{words}-{of.id}"
    return [(f"{name}.md", export(titled, rows, "markdown")), (f"{name}.jsonl", lines(titled, rows))]


async def memory_lines(own: Remembering) -> list[str]:
    """All memories, including replaced ones, the oldest first, each as a line of JSON with its sources."""
    which = MemoryFilter(kinds=LISTED_KINDS, at_most=Label.UNTRUSTED, superseded=True)
    rows: list[Memory] = []
    while page := await memories.listed(own.tx, own.principal, which, PAGE_OF_MEMORIES, len(rows)):
        rows += page
    return [await _memory_line(own, row) for row in reversed(rows)]


async def _memory_line(own: Remembering, row: Memory) -> str:
    learned = await memories.sources(own.tx, own.principal, row.id)
    whence = await imports.whence(own.tx, own.principal, row.id)
    return own.clean(json_text({**memory_json(row), **times(row), "learned_from": provenance(learned, whence)}))


def times(memory: Memory) -> dict[str, object]:
    """When a memory was learned, when what it says happened, and until when it held."""
    names = ("created_at", "event_at", "valid_to", "superseded_at", "forgotten_at")
    return {name: (at := getattr(memory, name)) and at.isoformat() for name in names}


def provenance(learned: Sequence[MemorySource], whence: ImportOrigin | None) -> dict[str, object]:
    """The messages and the import that a memory was learned from."""
    said = [
        {
            "message": source.message_id,
            "session": str(source.session_id),
            "who": source.kind,
            "trust": source.label.name.lower(),
            "at": source.sent_at.isoformat(),
            "text": source.text,
        }
        for source in learned
    ]
    imported = whence and {"source": whence.source, "place": whence.place, "at": whence.imported_at.isoformat()}
    return {"messages": said, "import": imported}
