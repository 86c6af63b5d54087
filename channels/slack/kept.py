"""What outlives a restart: the threads that we talk in, and what is half sent."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from gateway.domain.inbound import Address
from gateway.domain.logging import Logger

MOST = 2000

Name = TypeVar("Name")
Value = TypeVar("Value")


def put_newest(into: dict[Name, Value], name: Name, value: Value, most: int = MOST) -> None:
    """Put it last, and let what was put longest ago make room."""
    into.pop(name, None)
    into[name] = value
    while len(into) > most:
        del into[next(iter(into))]


class Kept:
    """Short facts in one small file; when it cannot be written or read, they are forgotten and nothing else."""

    def __init__(self, path: Path, log: Logger) -> None:
        self._path = path
        self._logger = log
        self._entries: dict[str, str] = {}

    def load(self) -> None:
        """Read the file, if there is one."""
        with suppress(OSError, ValueError, RecursionError):
            found = json.loads(self._path.read_text("utf-8"))
            if isinstance(found, dict):
                self._entries = {str(name): str(value) for name, value in found.items()}

    def get(self, name: str) -> str | None:
        """What was kept under the name."""
        return self._entries.get(name)

    def put(self, name: str, value: str) -> None:
        """Keep it; what was kept longest makes room."""
        put_newest(self._entries, name, value)
        self._save()

    def drop(self, name: str) -> None:
        """Forget it."""
        if self._entries.pop(name, None) is not None:
            self._save()

    def _save(self) -> None:
        """Whole or not at all; a killed process loses nothing that the operating system was given."""
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps(self._entries), "utf-8")
            fresh.replace(self._path)
        except OSError as error:
            self._logger.warning("slack.not_kept", why=str(error))


class Threads:
    """The threads in which people and we talk: who wrote there last, and when."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def __contains__(self, at: Address) -> bool:
        return self._kept.get(_name(at)) is not None

    def heard(self, at: Address, user: str, ts: str) -> None:
        """A person said something that is meant for us."""
        if at.thread:
            self._kept.put(_name(at), f"{ts} {user}")

    def spoke(self, at: Address) -> None:
        """We said something."""
        if at.thread and at not in self:
            self._kept.put(_name(at), "")

    def reader(self, at: Address) -> str:
        """Who wrote there last, "" when that is not known."""
        return (self._kept.get(_name(at)) or "").partition(" ")[2]

    def newest(self, at: Address) -> str:
        """When that was; what is not known was two minutes ago, for clocks differ. What we say now comes after."""
        return (self._kept.get(_name(at)) or "").partition(" ")[0] or f"{time.time() - 120:.6f}"


def _name(at: Address) -> str:
    return f"thread {at.chat} {at.thread}"
