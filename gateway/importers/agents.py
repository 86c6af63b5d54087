"""Folders of other agents: OpenClaw, Hermes and nanobot; their notes by other sources, their sessions here.

OpenClaw has its sessions in databases, before 2026.9 in files of lines, as nanobot has; Hermes has one database.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from pydantic import JsonValue, ValidationError

from gateway.domain.json import OBJECT
from gateway.domain.memory.imports import Damaged, ImportedSession, Passed, Record
from gateway.domain.principals import Label
from gateway.importers import Part, Source
from gateway.importers.records.files import Reader
from gateway.importers.records.texts import day_of, said, text_of, text_or_empty

SILENT = frozenset({"HEARTBEAT_OK", "NO_REPLY"})
"""Answers that OpenClaw doesn't show."""

_NOTES = {
    "passport": ("memories.jsonl",),
    "memory-md": ("MEMORY.md", "memory/MEMORY.md", "memories/MEMORY.md"),
    "daily-logs": ("memory",),
    "notes-md": ("memory/*.md", "USER.md", "memories/USER.md"),
    "todo-md": ("TODO.md",),
    "learnings-md": ("LEARNINGS.md", ".learnings/LEARNINGS.md"),
}
"""The files for other sources, the passport first."""
_LEFT_OUT = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "HEARTBEAT.md", "BOOTSTRAP.md", "memory/*[!d]")
"""Instructions, which are their agent's, and what no source reads."""


@dataclass(frozen=True, slots=True)
class _Home:
    """Where an agent has its sessions, below its folder, and the rows (session, place, event as JSON) of a database.

    `marks` are files that only such a folder has.
    """

    transcripts: str
    marks: tuple[str, ...]
    databases: str = "*.none"
    rows: str = ""

    def read(self, path: Path, reader: Reader) -> Iterator[Record]:
        """Yield the sessions in the folder and its workspaces, or in the one above the workspace that it is."""
        for workspace in _workspaces(path):
            yield from (Passed(file.name) for name in _LEFT_OUT for file in workspace.glob(name) if file.is_file())
        for root in (*_workspaces(path), path.parent):
            seen: set[str] = set()
            for file in sorted(root.glob(self.databases)):
                yield from self._database(file, seen)
            files = sorted(root.glob(self.transcripts))
            for file in (file for file in files if file.stem not in seen):
                lines = ((it.number, "" if it.cut else it.text) for it in reader.lines(file) if it.text.strip())
                yield from _session(file.stem, file.name, lines)
            if seen or files:
                return

    def matches(self, path: Path) -> bool:
        """Whether it is such a folder."""
        return path.is_dir() and any(any(path.glob(mark)) for mark in self.marks)

    def _database(self, file: Path, seen: set[str]) -> Iterator[Record]:
        """Yield the sessions of a database, and one `Damaged` if it can't be read to its end."""
        try:
            with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
                for session, rows in groupby(database.execute(self.rows), key=itemgetter(0)):
                    seen.add(str(session))
                    yield from _session(str(session), file.name, ((place, event) for _, place, event in rows))
        except sqlite3.Error as error:
            why = f"its sessions cannot be read ({error}); stop the agent, or update it, and try again"
            yield Damaged(file.name, why)


def _workspaces(path: Path) -> tuple[Path, ...]:
    return (path, *sorted(path.glob("workspace*")))


def _parts(path: Path) -> list[Part]:
    """The notes of a workspace, or of the workspaces in a state folder; a dated one is a daily log.

    A passport has all that its MEMORY.md has.
    """
    globs = [(name, at) for name, each in _NOTES.items() for at in each]
    found = [Part(name, file) for root in _workspaces(path) for name, at in globs for file in sorted(root.glob(at))]
    read = {part.path for part in found if part.source == "memory-md"}
    left = "memory-md" if any(part.source == "passport" for part in found) else ""
    notes = [part for part in found if part.source != "notes-md" or not (day_of(part.path) or part.path in read)]
    return [part for part in notes if part.source != left]


def _session(key: str, name: str, events: Iterable[tuple[int, str]]) -> Iterator[Record]:
    yield ImportedSession(key, None, name)
    for number, text in events:
        place = f"{name}:{number}"
        try:
            yield from _event(OBJECT.validate_python(json.loads(text)), place)
        except (ValueError, RecursionError, ValidationError):
            yield Damaged(place, "this line is not valid JSON, or longer than 1 MiB; skipped")


def _event(event: dict[str, JsonValue], place: str) -> Iterator[Record]:
    """Yield the message of an event, or the message that it is, if any."""
    message = event.get("message") if event.get("type") == "message" else event if "role" in event else None
    if not isinstance(message, dict):
        return
    role, text = text_or_empty(message.get("role")), text_of(message.get("content"))
    at = event.get("timestamp") or message.get("timestamp")
    yield said(role, "" if text in SILENT else text, at, place, event.get("id"), Label.OWNER)


def _is_openclaw(path: Path) -> bool:
    others = any(home.matches(path) for home in (_HERMES, _NANOBOT))
    return path.is_dir() and not others and (bool(_parts(path)) or _OPENCLAW.matches(path))


_SQLITE, _JSONL = "agents/*/agent/openclaw-agent.sqlite", "agents/*/sessions/*.jsonl"
_OPENCLAW_ROWS = "select session_id, seq, event_json from transcript_events order by session_id, seq"
_OPENCLAW = _Home(_JSONL, (_SQLITE, _JSONL), _SQLITE, _OPENCLAW_ROWS)
_HERMES_ROWS = """
  select session_id, id, json_object('role', role, 'content', content, 'timestamp', timestamp, 'id', 'm' || id)
  from messages order by session_id, id"""
_HERMES = _Home("sessions/*.jsonl", ("state.db", "memories/MEMORY.md", "memories/USER.md"), "state.db", _HERMES_ROWS)
_NANOBOT = _Home("sessions/*.jsonl", ("memory/HISTORY.md", "workspace/memory/HISTORY.md", "sessions/*.jsonl"))
SOURCES = {
    "openclaw": Source("an OpenClaw workspace", _is_openclaw, _OPENCLAW.read, _parts),
    "hermes": Source("a Hermes folder", _HERMES.matches, _HERMES.read, _parts),
    "nanobot": Source("a nanobot folder", _NANOBOT.matches, _NANOBOT.read, _parts),
}
