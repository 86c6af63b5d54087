"""The journal's only writer: appends, repairs and removes in the order of the calls; and its signing key."""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from gateway.config.data.files import create_private, read_regular
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import EntryId
from gateway.workspace.journal import files
from gateway.workspace.journal.entries import Content, JournalEntry, parse_entries, render_entries
from gateway.workspace.journal.files import Place, Version, Versions

KEY_BYTES = 32


def journal_key(path: Path) -> bytes:
    """The key, made at first use; raises `OwnerMustAct` when the file holds something else."""
    if not path.is_file():
        create_private(path, secrets.token_bytes(KEY_BYTES))
    key = read_regular(path)
    if len(key) != KEY_BYTES:
        raise OwnerMustAct(f"{path} is damaged; restore it from a backup, or remove it to distrust the old journals")
    return key


BURST = timedelta(hours=1)
KEPT = 100
"""Damaged originals that are kept, the newest."""

Result = TypeVar("Result")
PutRight = tuple[set[EntryId], Version | None]


class JournalWriter:
    """Journal files, off the event loop. Raises `OSError` and `WorkspaceError`."""

    def __init__(self, key: Path, damaged: Path) -> None:
        self._key_file = key
        self._damaged = damaged
        self._named: dict[Path, datetime] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-write")

    @cached_property
    def _key(self) -> bytes:
        return journal_key(self._key_file)

    async def open(self) -> None:
        """Read or make the key; raises `OwnerMustAct` when it is damaged."""
        await self._in_order(lambda: self._key)

    async def create(self, root: Path, at: datetime) -> Place:
        """A new, empty file named after this second or the next free one."""
        return await self._in_order(lambda: self._create(root, at))

    async def append(self, place: Place, entries: Iterable[JournalEntry], *, create: bool = False) -> Versions:
        """Add entries, not yet on disk; raises `FileNotFoundError` for a file that is gone, unless `create` is set.

        Returns what the file was before and what it is after.
        """

        def work() -> Versions:
            if create:
                files.make(place)
            return files.append(place, render_entries(entries, self._key))

        return await self._in_order(work)

    async def read(self, place: Place) -> Content:
        """The current content of the file; empty if it does not exist."""
        return await asyncio.to_thread(lambda: parse_entries(files.read(place)[0] or b"", self._key))

    async def sync(self, place: Place) -> None:
        """Bring the file to disk, with everything that was appended before."""
        await self._in_order(lambda: files.sync(place))

    async def put_right(self, place: Place, rows: Sequence[JournalEntry], stored: Set[EntryId]) -> PutRight:
        """Make the file hold these rows, then the arrivals it held besides that are not `stored`.

        Returns the latter, and which version is right by that, None if somebody else wrote at the same time. A damaged
        original is kept aside. An arrival that says what its row says stays as it arrived.
        """
        return await self._in_order(lambda: self._put_right(place, rows, stored))

    async def write(self, place: Place, text: str) -> Version:
        """Replace a file that is no journal; on disk after."""
        return await self._in_order(lambda: files.replace(place, text.encode()))

    async def extend(self, place: Place, text: str, left: Version | None) -> Version | None:
        """Add to a file that is no journal, on disk after; None if it is not as it was left."""
        return await self._in_order(lambda: files.extend(place, text.encode(), left))

    async def remove(self, place: Place, stored: Set[EntryId]) -> bool:
        """Delete the file unless an arrival in it is not `stored`; whether it is gone. A damaged one is kept aside."""
        return await self._in_order(lambda: self._remove(place, stored))

    def _create(self, root: Path, at: datetime) -> Place:
        last = self._named.get(root, at - files.SECOND)  # a burst need not try again what was just taken
        place = files.create(root, last + files.SECOND if at <= last + files.SECOND < at + BURST else at)
        self._named[root] = files.began(place.path)
        return place

    def _put_right(self, place: Place, rows: Sequence[JournalEntry], stored: Set[EntryId]) -> PutRight:
        data, read = files.read(place)
        held = parse_entries(data or b"", self._key)
        arrived = {entry.id: entry for entry in held.entries if entry.inbound is not None}
        whole = [first if _says_the_same(first := arrived.pop(row.id, row), row) else row for row in rows]
        left = [entry for entry in arrived.values() if entry.id not in stored]
        right = render_entries([*whole, *left], self._key)
        version: Version | None = read
        if data is None or not right.startswith(data):
            self._set_aside(place, data, held)
            version = files.replace(place, right)
        elif len(data) < len(right):
            before, after = files.append(place, right[len(data) :])
            version = after if before == read else None
        return {entry.id for entry in left}, version

    def _remove(self, place: Place, stored: Set[EntryId]) -> bool:
        data, _ = files.read(place)
        held = parse_entries(data or b"", self._key)
        if any(arrival.id not in stored for arrival in held.arrivals):
            return False
        self._set_aside(place, data, held)
        files.remove(place)
        return True

    def _set_aside(self, place: Place, data: bytes | None, held: Content) -> None:
        if data is None or held.intact:
            return
        name = f"{place.root.name}-{place.path.replace('/', '-').removesuffix('.md')}"
        files.replace(Place(self._damaged, f"{name}-{hashlib.sha256(data).hexdigest()[:8]}.md"), data)
        for old in sorted(self._damaged.iterdir(), key=lambda kept: kept.stat().st_mtime)[:-KEPT]:
            old.unlink()

    async def _in_order(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _says_the_same(arrived: JournalEntry, row: JournalEntry) -> bool:
    return (arrived.text, arrived.files) == (row.text, row.files)
