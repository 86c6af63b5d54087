"""The owner's checkpoints: the page and the command line list, compare, create and restore them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from gateway.domain.ids import MessageId
from gateway.domain.json import Json
from gateway.domain.time import Clock
from gateway.flow.labels import expect_older, list_older
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.store.transcript import messages
from gateway.workspace.checkpoints import jobs
from gateway.workspace.locks import note_owner_edits


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint."""

    id: str
    made_at: datetime
    reason: str
    changes: str
    last_message: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One changed path."""

    change: str
    path: str


@dataclass(frozen=True, slots=True)
class Created:
    """The result of creating a checkpoint; `id` is None if nothing had changed, `left_out` counts unstorable files."""

    id: str | None
    changes: str
    left_out: str


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of `restore`; `before` is the checkpoint of the state that it replaced."""

    before: str | None
    written: int
    removed: int
    left: list[str]


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of one workspace. `run` runs a job in a separate process."""

    workspace: Path
    data: Path
    run: Callable[..., Awaitable[Json]]

    async def listing(self, limit: int) -> list[Checkpoint]:
        """The last checkpoints, newest first."""
        return TypeAdapter(list[Checkpoint]).validate_python(await self.run(jobs.listing, str(self._store), limit))

    async def diff(self, id: str, other: str | None = None) -> list[Difference]:
        """The paths that changed from one checkpoint to another, or to the current workspace."""
        return TypeAdapter(list[Difference]).validate_python(await self.run(jobs.diff, *self._places, id, other))

    async def lines(self, id: str, path: str) -> str:
        """The lines of one file that changed since a checkpoint."""
        return str(await self.run(jobs.lines, *self._places, id, path))

    async def create(self, reason: str, last_message: MessageId | None) -> Created:
        """Make a checkpoint if anything has changed."""
        return TypeAdapter(Created).validate_python(await self.run(jobs.commit, *self._places, last_message, reason))

    async def restore(self, database: Database, clock: Clock, id: str, path: str | None) -> Restored:
        """Restore all files, or one file or folder; the current state becomes a checkpoint first.

        Restored content without a label is untrusted until the owner vouches for it; current content is the owner's.
        """
        async with database.connection() as conn:
            owner, last = await principals.owner(conn), await messages.last_id(conn)
        if owner is not None:
            await expect_older(database, owner.id, self.workspace)
        result = await self.run(jobs.restore, *self._places, id, path, last)
        await asyncio.to_thread(note_owner_edits, self.workspace, self.data)
        await list_older(database, lambda _: self.workspace, clock)
        return TypeAdapter(Restored).validate_python(result)

    @property
    def _store(self) -> Path:
        return self.data / "checkpoints"

    @property
    def _places(self) -> tuple[str, str]:
        return str(self.workspace), str(self._store)
