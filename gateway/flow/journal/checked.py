"""What was checked: the files that were right when they were last looked at, and the rows that all of them have."""

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import structlog

from gateway.store.transcript.entries import Mark
from gateway.workspace.journal import files
from gateway.workspace.journal.files import Place, Version

_NEVER = 2**63

log = structlog.get_logger(__name__)


class Checked:
    """Kept in one file across starts; whatever is wrong with that, nothing is known, and all is checked anew."""

    def __init__(self, file: Path) -> None:
        self._file = Place(file.parent, file.name)
        self._right: dict[str, Version] = {}
        self._saved = b""
        self.rows = Mark()
        """Up to these, each file that is right has all its rows."""
        self.at = _NEVER
        """When that was found, in nanoseconds: what was written since belongs to whoever waits for an answer."""

    def load(self, newest: Mark) -> None:
        """What the process before has left, unless that was of a database with more rows than these; blocks."""
        self.rows, self._right = newest, {}
        with suppress(OSError):
            digest, _, known = (files.read(self._file)[0] or b"").partition(b"\n")
            if digest != _digest(known):
                return
            message, arrival, at, right = json.loads(known)
            if message <= newest.message and arrival <= newest.arrival:
                self.rows, self.at = Mark(message, arrival), at
                self._right = {path: tuple(version) for path, version in right.items()}

    def move(self, rows: Mark) -> None:
        """Every file is right up to these rows."""
        self.rows, self.at = rows, time.time_ns()

    def state(self) -> bytes:
        """What `save` writes."""
        known = json.dumps([self.rows.message, self.rows.arrival, self.at, self._right]).encode()
        return _digest(known) + b"\n" + known

    def save(self, state: bytes) -> None:
        """Keep it, if it is not what was kept last; blocks."""
        try:
            if state != self._saved:
                files.replace(self._file, state)
                self._saved = state
        except OSError as exc:
            log.warning("journal.not_marked", error=str(exc))

    def unknown(self, there: Iterable[tuple[Place, Version]]) -> list[tuple[Place, Version]]:
        """Those of all the files there are that were not right when last looked at, or have changed since."""
        before, self._right = self._right, {}
        unknown: list[tuple[Place, Version]] = []
        for place, version in there:
            if before.get(_path(place)) == version:
                self._right[_path(place)] = version
            else:
                unknown.append((place, version))
        return unknown

    def learn(self, place: Place, version: Version | None) -> None:
        """This version of the file is right, and holds nothing that the database lacks; None: nobody can say so."""
        if version is None:
            self._right.pop(_path(place), None)
        else:
            self._right[_path(place)] = version


def _path(place: Place) -> str:
    return f"{place.root}/{place.path}"


def _digest(known: bytes) -> bytes:
    return blake2b(known, digest_size=16).hexdigest().encode()
