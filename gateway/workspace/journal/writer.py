"""The journal's one writer: what is appended, replaced and removed happens in the order it was asked for."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from gateway.domain.ids import EntryId
from gateway.workspace.journal import files
from gateway.workspace.journal.entry import Entry
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.format import Content, parse, render_all
from gateway.workspace.journal.key import journal_key
from gateway.workspace.journal.names import Seconds

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Held:
    """What a file held when it was read; a missing one holds nothing and is not intact."""

    content: Content
    size: int


class JournalWriter:
    """Journal files, off the event loop. Raises `OSError` and `WorkspaceError`."""

    def __init__(self, key: Path, damaged: Path) -> None:
        self._key_file = key
        self._damaged = damaged
        self._seconds = Seconds()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-write")

    @cached_property
    def _key(self) -> bytes:
        return journal_key(self._key_file)

    async def open(self) -> None:
        """Read or make the key; raises `OwnerMustAct` when it is damaged."""
        await self._in_order(lambda: self._key)

    async def create(self, root: Path, at: datetime) -> Place:
        """A new, empty file named after this second or the next free one."""
        return await self._in_order(lambda: files.create(root, self._seconds, at))

    async def append(self, place: Place, entries: Sequence[Entry], *, create: bool = False) -> None:
        """Add entries, not yet on disk; raises `FileNotFoundError` for a file that is gone, unless `create` is set."""

        def work() -> None:
            if create:
                files.recreate(place)
            files.append(place, render_all(entries, self._key))

        await self._in_order(work)

    async def read(self, place: Place) -> Held:
        """What the file holds now."""
        return await asyncio.to_thread(self._read, place)

    async def sync(self, place: Place) -> None:
        """Bring the file to disk, with everything that was appended before."""
        await self._in_order(lambda: files.sync(place))

    async def rewrite(self, place: Place, entries: Sequence[Entry], strays: Set[EntryId]) -> None:
        """Make the file hold these entries, then the arrivals it held besides, but for the `strays`; on disk after.

        A damaged original is kept aside. An arrival that says what its row says stays as it arrived.
        """

        def work() -> None:
            held = self._set_aside(place)
            listed = {entry.id for entry in entries}
            left = [e for e in held if e.arrival is not None and e.id not in listed and e.id not in strays]
            files.replace(place, render_all([*_as_arrived(entries, held), *left], self._key))

        await self._in_order(work)

    async def copy(self, place: Place, target: Place, entries: Sequence[Entry]) -> None:
        """Make `target` hold these entries, which are those of the file at `place`; on disk after."""

        def work() -> None:
            self._set_aside(place)
            files.replace(target, render_all(entries, self._key))

        await self._in_order(work)

    async def write(self, place: Place, text: str) -> None:
        """Replace a file that is no journal; on disk after."""
        await self._in_order(lambda: files.replace(place, text.encode()))

    async def remove(self, place: Place, *, size: int) -> bool:
        """Delete the file unless it has grown; whether it is gone."""
        return await self._in_order(lambda: files.remove(place, size=size))

    def _read(self, place: Place) -> Held:
        data = files.read(place)
        return Held(Content((), intact=False), 0) if data is None else Held(parse(data, self._key), len(data))

    def _set_aside(self, place: Place) -> tuple[Entry, ...]:
        """The entries of the file, which is kept if it is damaged."""
        data = files.read(place)
        if data is None:
            return ()
        content = parse(data, self._key)
        if not content.intact:
            name = f"{place.root.name}-{place.path.replace('/', '-').removesuffix('.md')}"
            files.replace(Place(self._damaged, f"{name}-{hashlib.sha256(data).hexdigest()[:8]}.md"), data)
        return content.entries

    async def _in_order(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _as_arrived(entries: Sequence[Entry], held: Sequence[Entry]) -> list[Entry]:
    arrived = {entry.id: entry for entry in held if entry.arrival is not None}
    return [
        first if (first := arrived.get(entry.id)) is not None and first.text == entry.text else entry
        for entry in entries
    ]
