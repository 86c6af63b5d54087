"""The job `embed`: turns new messages and files into rows, word counts, passages and vectors, batch by batch.

Each batch is one transaction, and the rows say what is left to do: a killed job continues where it stopped.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path

import structlog

from gateway.config.failpoints import Step
from gateway.domain.ids import MessageId, PrincipalId
from gateway.domain.memory.memories import Embedder, EmbeddingUnavailable
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.flow.engine import Engine
from gateway.flow.secrets.guard import Clean
from gateway.llm.embedding.remote import check_vectors
from gateway.memory.lexemes import passages
from gateway.store.connection.pool import Connection
from gateway.store.memory import indexing, vectors
from gateway.store.memory.indexing import pending
from gateway.store.memory.vectors import VectorModel
from gateway.store.people import principals
from gateway.workspace.files.disk import FoundFile, walk
from gateway.workspace.files.paths import INSTRUCTIONS, READ_ONLY, WorkspaceError
from gateway.workspace.files.tree import Workspace
from gateway.workspace.files.uploads import PAGES_SUFFIX, TEXT_SUFFIX

POLL_FILES = timedelta(minutes=10)
MAX_FILES = 2_000
"""The limit for one person; further files are not searched."""
MAX_BYTES = 512 * 1024
"""The limit for one file; the rest of it is not searched."""
SUFFIXES = frozenset(
    {".md", ".txt", ".rst", ".org", ".tex", ".csv", ".tsv", ".json", ".yaml", ".yml", ".toml", ".html"}
)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FilePassages:
    """Compares sizes and dates of files, and indexes new and changed ones."""

    engine: Engine
    workspace: Callable[[PrincipalId], Workspace]
    clean: Clean

    async def look(self) -> None:
        """Index new and changed files."""
        everybody = await self.engine.database.read(principals.everybody)
        for principal in everybody:
            await self._look_at(principal, self.workspace(principal))

    async def _look_at(self, principal: PrincipalId, workspace: Workspace) -> None:
        there = await asyncio.to_thread(lambda: dict(text_files(workspace.root)))
        known = await self.engine.database.read(lambda conn: indexing.indexed_files(conn, principal))
        for path in known.keys() - there.keys():
            await self.engine.database.run(partial(indexing.remove_passages, principal=principal, path=path))
        for path, (text_path, version) in there.items():
            if known.get(path) != version:
                await self._read(principal, workspace, path, text_path, version)

    async def _read(
        self, principal: PrincipalId, workspace: Workspace, path: str, text_path: str, version: str
    ) -> None:
        """Replace the passages of a file; an unreadable file has none until it changes."""
        try:
            page = await workspace.page(text_path, limit=MAX_BYTES)
        except WorkspaceError as exc:
            log.info("memory.file_not_read", path=path, error=str(exc))
            page = None
        found = await asyncio.to_thread(passages, self.clean(page.text)) if page else ()
        label = page.label if page else Label.UNTRUSTED
        await self.engine.database.run(lambda tx: indexing.replace_passages(tx, principal, path, version, label, found))


def text_files(root: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the path of each file that has a text, with the path of the text and its version."""
    files = (each for each in walk(root, _not_searched, lambda *_: None) if _is_text(each))
    with suppress(OSError):
        for path, state, _ in islice(files, MAX_FILES):
            source = path.removesuffix(TEXT_SUFFIX)
            of = source if source != path and os.path.lexists(root / source) else path
            yield of, (path, f"{state.st_size}:{state.st_mtime_ns}")


_APART = INSTRUCTIONS | READ_ONLY
"""Files at the top that are not searched: every prompt has them, or they copy conversations, which are searched."""


def _not_searched(parts: tuple[str, ...]) -> bool:
    name = parts[-1]
    apart = len(parts) == 1 and name.casefold() in _APART
    return apart or name.startswith(".") or name.endswith(PAGES_SUFFIX) or storable(name) != name


def _is_text(found: FoundFile) -> bool:
    return os.path.splitext(found.name)[1].casefold() in SUFFIXES and stat.S_ISREG(found.status.st_mode)


BATCH = 100
"""Messages that become rows, or rows whose words are counted, in one transaction."""
EMBED_BATCH = 32
"""Rows whose vectors are computed and stored together."""
GATHER_SECONDS = 120.0
MIN_BATCH = 64
"""Fewer rows wait for others, up to `GATHER_SECONDS`, because loading a model takes memory."""
RETRY_SECONDS = 300.0
PAUSE_SECONDS, PAUSES = 0.05, 3
"""The pause between batches: these seconds plus so many times the batch's duration, to leave time for other work."""

Allowed = Callable[[Embedder, int], Awaitable[bool]]
"""Whether this many rows may be embedded now; a provider may charge for them."""


@dataclass(slots=True)
class Indexing:
    """Indexes messages; one instance per process, several on one database share the work. `files` indexes files."""

    engine: Engine
    embedder: Callable[[], Embedder | None]
    files: Callable[[], Awaitable[object]]
    allowed: Allowed
    _looked_at: MessageId | None = None
    _gathering_since: float | None = None
    _last_warning: str = ""
    _complete: str = ""
    _refused: set[str] = field(default_factory=set)
    """Texts that the model takes in no length: they get the vector of an empty one, and don't keep out the others."""

    async def look(self) -> datetime | None:
        """Do the work that is due; return when more is due, None if nothing waits."""
        await self.files()
        found = await self.engine.database.read(pending)
        if found.newest != self._looked_at:
            await self._index(found.newest)
            found = await self.engine.database.read(pending)
        if found.uncounted:
            await self._paced(self._count_batch)
        if not (embedder := self.embedder()) or not (found.unembedded or embedder.name != self._complete):
            return None
        due = await self._embed(embedder)
        return None if due is None else self.engine.clock.now() + timedelta(seconds=due)

    async def _index(self, newest: MessageId | None) -> None:
        """Index the turns of conversations, up to the newest message."""
        await self._paced(self._index_batch)
        if not await self.engine.database.read(indexing.unindexed):  # otherwise a search is indexing them now
            self._looked_at = newest

    async def _index_batch(self) -> bool:
        if not await self.engine.database.run(lambda tx: indexing.index_turns(tx, None, BATCH)):
            return False
        self.engine.failpoints.reach(Step.MEMORY_INDEXED)
        await self._count_batch()
        return True

    async def _count_batch(self) -> bool:
        if not await self.engine.database.run(lambda tx: indexing.count_words(tx, BATCH)):
            return False
        self.engine.failpoints.reach(Step.MEMORY_COUNTED)
        return True

    async def _paced(self, batch: Callable[[], Awaitable[bool]]) -> None:
        """Run batches, with pauses, until none is left."""
        while True:
            began = self.engine.clock.monotonic()
            if not await batch():
                return
            await self.engine.clock.sleep(PAUSE_SECONDS + PAUSES * (self.engine.clock.monotonic() - began))

    async def _embed(self, embedder: Embedder) -> float | None:
        """Compute the missing vectors; return in how many seconds to look again."""
        try:
            if why := await self.engine.database.run(vectors.ensure_table):
                self._warn(why)
                return RETRY_SECONDS
            model = await self._model(embedder)
            if wait := await self._wait(embedder, model):
                return wait
            while await self._embed_batch(embedder, model):
                self.engine.failpoints.reach(Step.MEMORY_EMBEDDED)
                await self.engine.clock.sleep(PAUSE_SECONDS)
            whole = await self._finish(model)
        except (EmbeddingUnavailable, ValueError) as exc:
            self._warn(str(exc))
            return RETRY_SECONDS
        self._last_warning, self._complete = "", embedder.name if whole else ""
        return None

    async def _model(self, embedder: Embedder) -> VectorModel:
        """The model whose vectors are computed; from its first use, other models get no new vectors."""
        async with self.engine.database.connection() as conn:
            known = await vectors.requested_model(conn, embedder.name, embedder.dimensions)
        if known is not None:
            return known
        dimensions = embedder.dimensions or len((await embedder.passages(["."]))[0])
        log.info("memory.model", name=embedder.name, dimensions=dimensions)
        return await self.engine.database.run(lambda tx: vectors.request_model(tx, embedder.name, dimensions))

    async def _wait(self, embedder: Embedder, model: VectorModel) -> float | None:
        """Seconds to wait for more rows or for an approval; None: continue now."""
        left = await self.engine.database.read(lambda conn: vectors.count_unembedded(conn, MIN_BATCH))
        if not left:
            self._gathering_since = None
            return None
        if left < MIN_BATCH and model.current:
            now = self.engine.clock.monotonic()
            self._gathering_since = since = now if self._gathering_since is None else self._gathering_since
            if (wait := since + GATHER_SECONDS - now) > 0:
                return wait
        self._gathering_since = None
        left = await self.engine.database.read(lambda conn: vectors.count_unembedded(conn, 2**31))
        return None if await self.allowed(embedder, left) else RETRY_SECONDS

    async def _embed_batch(self, embedder: Embedder, model: VectorModel) -> bool:
        rows = await self.engine.database.read(lambda conn: vectors.list_unembedded(conn, EMBED_BATCH))
        if not rows:
            return False
        try:
            found = await embedder.passages(["" if row.text in self._refused else row.text for row in rows])
        except EmbeddingUnavailable as exc:
            if not exc.refused:
                raise
            log.warning("memory.text_refused", why=str(exc), effect="it is found by words")
            self._refused.add(exc.refused)
            return True
        made = check_vectors(model.name, found, len(rows), model.dimensions)
        return await self.engine.database.run(lambda tx: vectors.put(tx, model, rows, made)) > 0

    async def _finish(self, model: VectorModel) -> bool:
        """If no row lacks a vector, searches use this model, and older vectors are deleted."""

        async def settled(tx: Connection) -> bool:
            await vectors.index(tx, model)
            return await vectors.settle(tx, model)

        whole = await self.engine.database.run(settled)
        while whole and await self.engine.database.run(lambda tx: vectors.prune(tx, 10 * BATCH)) > 0:
            await self.engine.clock.sleep(PAUSE_SECONDS)
        return whole

    def _warn(self, why: str) -> None:
        """Log a warning once, until embedding works again or fails for another reason."""
        if why != self._last_warning:
            log.warning("memory.not_embedded", why=why, effect="memory is searched by words")
        self._last_warning = why
