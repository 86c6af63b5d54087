"""What was checked: the files that were right when they were last looked at, and the rows that all of them have."""

import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import structlog

from gateway.store.transcript.entries import Mark
from gateway.workspace.journal import files
from gateway.workspace.journal.files import Place, Version

_DIGEST = 8
_HEAD = struct.Struct(">3Q")
_NEVER = 2**63
_VERSION = struct.Struct(">4q")

log = structlog.get_logger(__name__)


class Checked:
    """Kept in one file across starts; whatever is wrong with that, nothing is known, and all is checked anew."""

    def __init__(self, file: Path) -> None:
        self._file = Place(file.parent, file.name)
        self._right: dict[bytes, bytes] = {}
        self._saved = b""
        self.rows = Mark()
        """Up to these, each file that is right has all its rows."""
        self.at = _NEVER
        """When that was found, in nanoseconds: what was written since belongs to whoever waits for an answer."""

    def load(self, newest: Mark) -> None:
        """What the process before has left, unless that was of a database with more rows than these; blocks."""
        self.rows = newest
        with suppress(OSError):
            data = files.read(self._file)[0] or b""
            known, seal = data[:-_DIGEST], data[-_DIGEST:]
            if seal != _digest(known) or len(known) < _HEAD.size:
                return
            message, arrival, at = _HEAD.unpack_from(known)
            if message <= newest.message and arrival <= newest.arrival:
                self.rows, self.at = Mark(message, arrival), at
                pairs = (known[at : at + 2 * _DIGEST] for at in range(_HEAD.size, len(known), 2 * _DIGEST))
                self._right = {pair[:_DIGEST]: pair[_DIGEST:] for pair in pairs}

    def move(self, rows: Mark) -> None:
        """Every file is right up to these rows."""
        self.rows, self.at = rows, time.time_ns()

    def state(self) -> bytes:
        """What `save` writes."""
        known = _HEAD.pack(self.rows.message, self.rows.arrival, self.at) + b"".join(map(b"".join, self._right.items()))
        return known + _digest(known)

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
            key, digest = _key(place), _digest(_VERSION.pack(*version))
            if before.get(key) == digest:
                self._right[key] = digest
            else:
                unknown.append((place, version))
        return unknown

    def learn(self, place: Place, version: Version | None) -> None:
        """This version of the file is right, and holds nothing that the database lacks; None: nobody can say so."""
        if version is None:
            self._right.pop(_key(place), None)
        else:
            self._right[_key(place)] = _digest(_VERSION.pack(*version))


def _key(place: Place) -> bytes:
    return _digest(f"{place.root}/{place.path}".encode(errors="surrogateescape"))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST).digest()
