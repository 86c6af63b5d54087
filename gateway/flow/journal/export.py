"""A conversation as a file: Markdown to read, JSON for programs. Untrusted text stays marked."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.domain.text.marks import quoted
from gateway.domain.text.texts import one_line
from gateway.store.transcript.conversations import Conversation
from gateway.store.transcript.messages import MessageRow

Format = Literal["markdown", "json"]

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
