"""Workspaces: each person's files, with the labels of their contents."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cachetools import LRUCache

from gateway.domain.ids import PrincipalId, TaskId
from gateway.flow.engine import Engine
from gateway.flow.labels import ContentLabels
from gateway.store.connection.pool import Database
from gateway.workspace.files.access import Quota
from gateway.workspace.files.copies import copy_workspace
from gateway.workspace.files.index import INDEX_FOLDER
from gateway.workspace.files.tree import Workspace
from gateway.workspace.journal.files import Place
from gateway.workspace.template import template_hashes

MAX_BUILT = 256


@dataclass(slots=True, kw_only=True)
class Workspaces:
    """The workspaces by person: the owner's is `folder`, others are in `others`, by their id, and have a quota."""

    engine: Engine
    folder: Path
    others: Path
    unverified: Callable[[Place], bool]
    """Whether a person or program may have changed this file of a journal."""
    member_mb: Callable[[], int | None]
    """The limit in MB for the files of one person other than the owner; None for no limit."""
    own: Workspace = field(init=False)
    """The owner's workspace."""
    _harmless: frozenset[str] = field(init=False)
    _built: LRUCache[PrincipalId, Workspace] = field(default_factory=lambda: LRUCache(MAX_BUILT), init=False)
    _quotas: dict[PrincipalId, Quota] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._harmless = frozenset(template_hashes())
        owner = self.engine.people.owner.id
        self.own = self._at(owner, self.folder, self._index_file(owner))

    def root_of(self, principal: PrincipalId) -> Path:
        """The folder of a person's files, which may not exist yet."""
        return self.folder if self.engine.people.is_owner(principal) else self.others / str(principal)

    def of(self, principal: PrincipalId) -> Workspace:
        """A person's workspace; the least recently used ones are dropped, and built again when needed."""
        if self.engine.people.is_owner(principal):
            return self.own
        if principal not in self._built:
            root = self.root_of(principal)
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._built[principal] = self._at(principal, root, self._index_file(principal))
        return self._built[principal]

    def of_fork(self, principal: PrincipalId, fork: TaskId) -> Workspace:
        """The copy of a person's files that a fork of their task uses."""
        return self._at(principal, self._forks / str(fork))

    async def copy_for(self, principal: PrincipalId, fork: TaskId) -> None:
        """Copy the person's current files for a fork, once. Deletes copies that are a week old."""
        await asyncio.to_thread(copy_workspace, self.of(principal).root, self._forks, str(fork))

    def forget(self) -> None:
        """Drop all workspaces but the owner's; each is built again when needed."""
        self._built.clear()

    @property
    def _forks(self) -> Path:
        return self.others.parent / "forks"

    def _at(self, principal: PrincipalId, root: Path, index: Path | None = None) -> Workspace:
        if self.engine.people.is_owner(principal):
            return Workspace(root, self._labels(self.engine.database, principal, root), index)
        # A member's label store holds only their own rows.
        workspace = Workspace(root, self._labels(self.engine.database.bound(principal), principal, root), index)
        workspace.quota = self._quotas.setdefault(principal, Quota(root, self.member_mb))
        return workspace

    def _index_file(self, principal: PrincipalId) -> Path:
        return self.others.parent / INDEX_FOLDER / str(principal)

    def _labels(self, database: Database, principal: PrincipalId, root: Path) -> ContentLabels:
        def unverified(path: str) -> bool:
            return self.unverified(Place(root, path))

        own = self.engine.people.own_label(principal)
        return ContentLabels(database, principal, own, self._harmless, unverified, self.engine.instance)
