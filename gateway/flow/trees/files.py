"""The files of a task: whatever lies in its own folder of the workspace, whichever tool put it there."""

import asyncio
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from gateway.domain.ids import TaskId
from gateway.domain.work.tasks import Claim
from gateway.domain.work.trees import FILES, MOST_FILES
from gateway.store.connection.pool import Database
from gateway.store.engine import trees
from gateway.workspace.files.copies import zip_members
from gateway.workspace.files.paths import WorkspaceError

WRITERS = frozenset({"write_file", "bash", "exec", "spawn"})
"""Without one of these tools an agent has no use for a folder."""


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """Of one node; it's made by the first file in it, and goes when its tree is cleared away."""

    workspace: Path
    path: str

    @classmethod
    def of(cls, workspace: Path, master: TaskId, task: TaskId) -> "TaskFolder":
        """In this workspace, which holds the files of all trees in `FILES`."""
        return cls(workspace, f"{FILES}/{master}/{task}")

    def hint(self, tools: Set[str] | None) -> str:
        """What an agent with these tools is told of it; None: it has all of them."""
        return f"Files that belong to the result go in {self.path}/." if tools is None or tools & WRITERS else ""

    async def note(self, database: Database, run: Claim) -> None:
        """Store on the run's task which files there are now, the first `MOST_FILES` by name."""
        try:
            found = await asyncio.to_thread(zip_members, self.workspace, self.path)
        except WorkspaceError:  # there is no such folder, or more in it than anybody could list
            return
        files = [str(file.path) for file in found[:MOST_FILES]]
        await database.run(lambda tx: trees.keep_files(tx, run, files))
