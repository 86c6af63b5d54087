"""An OpenClaw workspace: its MEMORY.md, memory/, TODO.md and LEARNINGS.md, and those of its sessions that can be read.

Sessions are in the state folder, one above the workspace: since 2026.9 in `agents/*/agent/openclaw-agent.sqlite`,
before that in `agents/*/sessions/*.jsonl`. A row of the database has the content of a line of the files.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from pydantic import JsonValue, TypeAdapter, ValidationError

from gateway.domain.memory.imports import Damaged, ImportedMessage, ImportedSession, Passed, Record
from gateway.importers import Part, Source
from gateway.importers.records.files import Reader
from gateway.importers.records.texts import ROLES, text_of, text_or_empty, time_of

DATABASES, TRANSCRIPTS = "agents/*/agent/openclaw-agent.sqlite", "agents/*/sessions/*.jsonl"
SILENT = frozenset({"HEARTBEAT_OK", "NO_REPLY"})
"""Answers that OpenClaw doesn't show."""

_EVENT = TypeAdapter(dict[str, JsonValue])
_FILES = (
    ("memory-md", "MEMORY.md"),
    ("daily-logs", "memory"),
    ("todo-md", "TODO.md"),
    ("learnings-md", "LEARNINGS.md"),
    ("learnings-md", ".learnings/LEARNINGS.md"),
)


def _parts(path: Path) -> list[Part]:
    """The files of a workspace, or of the workspaces in a state folder."""
    workspaces = (path, *sorted(path.glob("workspace*")))
    found = (Part(name, root / file) for root in workspaces for name, file in _FILES)
    return [part for part in found if part.path.exists()]


def _read(path: Path, reader: Reader) -> Iterator[Record]:
    for root in (path, path.parent):
        seen: set[str] = set()
        for file in sorted(root.glob(DATABASES)):
            yield from _database(file, seen)
        for file in sorted(root.glob(TRANSCRIPTS)):
            if file.stem not in seen:
                yield from _session(file.stem, file.name, _lines(file, reader))
        if seen or any(root.glob(TRANSCRIPTS)):
            return


def _database(file: Path, seen: set[str]) -> Iterator[Record]:
    """Yield the sessions of a database, and one `Damaged` if it can't be read to its end."""
    rows = "select seq, event_json from transcript_events where session_id = ? order by seq"
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            ids = database.execute("select distinct session_id from transcript_events order by 1").fetchall()
            for (session,) in ids:
                seen.add(str(session))
                yield from _session(str(session), file.name, database.execute(rows, (session,)))
    except sqlite3.Error as error:
        yield Damaged(file.name, f"its sessions cannot be read ({error}); stop OpenClaw, or update it, and try again")


def _lines(file: Path, reader: Reader) -> Iterator[tuple[int, str]]:
    for line in reader.lines(file):
        if line.text.strip():
            yield line.number, "" if line.cut else line.text


def _session(key: str, name: str, events: Iterable[tuple[int, str]]) -> Iterator[Record]:
    yield ImportedSession(key, None, name)
    for number, text in events:
        place = f"{name}:{number}"
        try:
            yield from _event(_EVENT.validate_python(json.loads(text)), place)
        except (ValueError, RecursionError, ValidationError):
            yield Damaged(place, "this line is not valid JSON, or longer than 1 MiB; skipped")


def _event(event: dict[str, JsonValue], place: str) -> Iterator[Record]:
    """Yield the message of an event, if it is one."""
    message = event.get("message")
    if event.get("type") != "message" or not isinstance(message, dict):
        return
    role, text = ROLES.get(text_or_empty(message.get("role"))), text_of(message.get("content"))
    if role is None or not text or text in SILENT:
        yield Passed("empty" if role else "of the system or a tool")
        return
    at = time_of(event.get("timestamp")) or time_of(message.get("timestamp"))
    yield ImportedMessage(role, text, at, place, text_or_empty(event.get("id")))


def _matches(path: Path) -> bool:
    return path.is_dir() and (bool(_parts(path)) or any(path.glob(DATABASES)) or any(path.glob(TRANSCRIPTS)))


source = Source("an OpenClaw workspace", _matches, _read, _parts)
