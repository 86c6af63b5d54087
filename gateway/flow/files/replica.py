"""A folder that is kept the same on several machines: compares, plans, and carries out the plan.

The map in Postgres says which content a path has; the store only holds contents, by their hash. A push labels and
stores a content, then sets its row, unless another machine has set it meanwhile. If two machines change a file, the
second loses: its content is kept beside it, under another name. A kill at any moment leaves at most an unused object.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import assert_never

from gateway.config.failpoints import Failpoints, Step
from gateway.domain.errors import TryAgainLater
from gateway.domain.files import FileContent, SharedFile, locked_parts
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.net.object_store import BadObject, ObjectStore
from gateway.store.connection.pool import Database
from gateway.store.files import contents, file_map
from gateway.workspace.files.disk import Written
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath
from gateway.workspace.files.tree import Workspace
from gateway.workspace.locks import MAX_LOCKED_BYTES, LockWatch
from gateway.workspace.sync.folder import FileChanged, Scan, StateFile, copy_out, drop_file, place_file, scan
from gateway.workspace.sync.plan import Action, Drop, Plan, Pull, Push, Retract, plan
from gateway.workspace.template import template_hashes

ROUNDS = 3
"""Other machines change files too; the next synchronisation does the rest."""
AT_ONCE = 8
WAITS_FOR_TOOLS = "it waits until the tools that run have ended"


class Missing(Enum):
    """The action if most files are missing here: do nothing, delete them everywhere, or fetch them again."""

    ASK = "ask"
    DELETE = "delete"
    RESTORE = "restore"


@dataclass(slots=True)
class SyncResult:
    """The completed actions; `problems` says why a file was left alone, by path."""

    actions: list[Action] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def beside(self) -> list[str]:
        """The new names of contents that lost."""
        return [each.beside for each in self.actions if isinstance(each, Pull) and each.beside]


@dataclass(slots=True)
class Replica:
    """Synchronises one person's files, with `state` from the last time. `locks` watches the tools on them, if any."""

    database: Database
    principal: PrincipalId
    workspace: Workspace
    locks: LockWatch | None
    store: ObjectStore
    state: StateFile
    failpoints: Failpoints = field(default_factory=lambda: Failpoints(None))
    nobodys: Set[str] = field(default_factory=template_hashes)
    """Hashes of the files in a new workspace."""
    _numbers: "count[int]" = field(default_factory=count)
    _rows: tuple[file_map.Version, Mapping[str, SharedFile]] | None = None
    _began: datetime = datetime.min
    """The start of this look, by the database's clock."""
    _unlabelled: set[str] = field(default_factory=set)
    _doubt: bool = False
    """Whether a program may have written the content that has no label."""
    _agreed: Mapping[str, FileContent] = field(default_factory=dict)
    """The content of the file `state`."""
    _base: dict[str, FileContent] = field(default_factory=dict)
    _scan: Scan = field(default_factory=Scan)

    async def look(self, missing: Missing = Missing.ASK) -> Plan:
        """The plan of `sync`; changes nothing."""
        async with self.state.held():
            return await self._planned(missing)

    async def sync(
        self, missing: Missing = Missing.ASK, begun: Callable[[int], Callable[[], None]] = lambda _many: lambda: None
    ) -> SyncResult:
        """Make both sides the same; raises `TryAgainLater` and `WorkspaceError`, which keep completed actions.

        `begun` receives the number of actions of a round, and returns a function to call after each.
        """
        done = SyncResult()
        async with self.state.held():
            await asyncio.to_thread(self.state.clear)
            for _ in range(ROUNDS):
                planned = await self._planned(missing)
                done.problems = {**self._scan.left_out, **planned.refused}
                try:
                    again = await self._carry_out(planned.actions, done, begun(len(planned.actions)))
                finally:
                    if self._base != self._agreed:
                        await asyncio.to_thread(self.state.save, self._base)
                if not again:
                    break
        return done

    async def _planned(self, missing: Missing) -> Plan:
        self._agreed = base = await asyncio.to_thread(self.state.load)
        self._scan = here = await asyncio.to_thread(scan, self.workspace.index)
        rows = await self._map()
        if missing is Missing.RESTORE:
            base = {path: content for path, content in base.items() if path in here.files}
        decide = partial(plan, here.files, base, rows, here.left_out.keys(), self.nobodys)
        planned = await asyncio.to_thread(decide, gone_on_purpose=missing is Missing.DELETE)
        self._base = {path: content for path, content in {**base, **planned.agreed}.items() if content is not None}
        return planned

    async def _map(self) -> Mapping[str, SharedFile]:
        """The shared files by path, loaded again only if the map has changed."""
        place_ = self.store.address.place
        async with self.database.connection() as conn:
            version, self._began = await file_map.version(conn, self.principal, place_)
            if self._rows is None or self._rows[0] != version:
                self._rows = version, await file_map.rows(conn, self.principal, place_)
        return self._rows[1]

    async def _carry_out(self, actions: Sequence[Action], done: SyncResult, after: Callable[[], None]) -> bool:
        """Carry out the actions; return whether to look again. An outage ends it after the active ones."""
        if not actions:
            return False
        free, failure = asyncio.Semaphore(AT_ONCE), list[TryAgainLater]()
        await self._look_for_labels(actions)
        again = False

        async def one(action: Action) -> None:
            nonlocal again
            async with free:
                try:
                    if not failure:
                        await self._do(action)
                        done.actions.append(action)
                        again = True
                except FileChanged:
                    again = True
                except (BadObject, WorkspaceError) as error:
                    done.problems[action.path] = str(error)
                except TryAgainLater as error:
                    failure.append(error)
                after()

        await asyncio.gather(*map(one, actions))
        if failure:
            raise failure[0]
        return again

    async def _look_for_labels(self, actions: Sequence[Action]) -> None:
        hashes = [action.content.sha256 for action in actions if isinstance(action, Push)]
        async with self.database.connection() as conn:
            self._unlabelled, self._doubt = await contents.unlabelled(conn, self.principal, hashes)

    async def _do(self, action: Action) -> None:
        """Carry out an action; raises `FileChanged` if file or row have changed, `WorkspaceError` if it must wait."""
        content: FileContent | None = None
        match action:
            case Push(path, content, version):
                await self._store(path, content)
                await self._set(path, version, content)
                self.failpoints.reach(Step.SYNC_SET)
            case Pull(path, content):
                await self._fetch(action)
            case Retract(path, version):
                async with self._no_tools(locked=path in self._locked_paths):  # a tool's deletion is undone
                    await self._set(path, version, None)
            case Drop(path):
                await self._land(path, lambda: drop_file(self.workspace.root, action))
            case _:
                assert_never(action)
        self._base.pop(path, None)
        self._base |= {path: content} if content else {}

    async def _store(self, path: str, content: FileContent) -> None:
        """Label the content and put it into the store."""
        written, labels = _as_written(path, content), self.workspace.labels
        if content.sha256 in self._unlabelled and self._doubt:
            raise WorkspaceError("later", WAITS_FOR_TOOLS)
        with self._staged() as staged:
            locked = await asyncio.to_thread(self._is_locked, path, content)
            async with self._no_tools(locked=locked):
                await asyncio.to_thread(_copy_to, self.workspace.root, path, content, staged)
            await labels.note(written, await labels.of(path, content.sha256), "")
            await self.store.put(content.sha256, staged)
        self.failpoints.reach(Step.SYNC_STORED)

    @property
    def _locked_paths(self) -> Sequence[str]:
        return self.locks.paths if self.locks else ()

    def _is_locked(self, path: str, content: FileContent) -> bool:
        """Whether the file has, or had, text that only its owner may change."""
        small = content.size <= MAX_LOCKED_BYTES and self.workspace.head(path, MAX_LOCKED_BYTES)
        return path in self._locked_paths or bool(small and locked_parts(small.data))

    @asynccontextmanager
    async def _no_tools(self, *, locked: bool) -> AsyncGenerator[None, None]:
        """Keep tools from running, so that locked text is its owner's; raises `WorkspaceError` if one runs."""
        if not self.locks or not locked:
            yield
            return
        async with self.locks.between_runs() as quiet:
            if not quiet:
                raise WorkspaceError("later", WAITS_FOR_TOOLS)
            yield

    async def _set(self, path: str, version: int, content: FileContent | None) -> None:
        compare = partial(
            file_map.compare_and_set,
            principal=self.principal,
            place=self.store.address.place,
            path=path,
            version=version,
            content=content,
            stored_after=self._began,
        )
        if not await self.database.run(compare):
            raise FileChanged(WorkspacePath.parse(path))

    async def _fetch(self, pull: Pull) -> None:
        with self._staged() as staged:
            await self.store.fetch(pull.content.sha256, pull.content.size, staged)
            self.failpoints.reach(Step.SYNC_FETCHED)
            await self._land(pull.path, lambda: self._place(pull, staged), pull.content)
            self.failpoints.reach(Step.SYNC_PLACED)

    @contextmanager
    def _staged(self) -> Iterator[Path]:
        staged = self.state.staging(next(self._numbers))
        try:
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    async def _land(self, path: str, work: Callable[[], None], content: FileContent | None = None) -> None:
        """Change a file like its owner on another machine: locked text is accepted, labels are set before."""
        labels = self.workspace.labels
        async with self.workspace.writing:
            if content:
                await labels.note(_as_written(path, content), Label.UNTRUSTED, "")
                await self.workspace.noted(await labels.of(path, content.sha256), False)
            await self.workspace.in_writer(lambda: self._taken(path, work))

    def _taken(self, path: str, work: Callable[[], None]) -> None:
        work()
        self.workspace.accept(path)

    def _place(self, pull: Pull, staged: Path) -> None:
        if pull.content.size <= MAX_LOCKED_BYTES:
            self.workspace.before_edit(staged.read_bytes())
        place_file(self.workspace.root, pull, staged)


def _as_written(path: str, content: FileContent) -> Written:
    return Written(path, content.size, content.sha256)


def _copy_to(root: Path, path: str, content: FileContent, to: Path) -> None:
    with to.open("wb") as staged:
        copy_out(root, path, content, staged)
