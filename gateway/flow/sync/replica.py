"""One folder that is kept the same as on other machines: looks, decides, and carries out what was decided.

The map in Postgres says which content a path has; the store only holds contents, by their hash. A content is labelled
and stored, then its row is set, unless somebody else has set it meanwhile. Of two machines that changed a file the
second loses: its content stays beside, under another name. A kill at any moment leaves at most an object too many.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import assert_never

from gateway.config.failpoints import Failpoints, Step
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import PrincipalId
from gateway.domain.locks import locked_parts
from gateway.domain.principals import Label
from gateway.domain.synced import Content, Row
from gateway.net.objects import BadObject, ObjectStore
from gateway.store import contents, synced
from gateway.store.pool import Database
from gateway.workspace.locks.keeper import MAX_BYTES as MAX_LOCKED_BYTES
from gateway.workspace.locks.watch import LockWatch
from gateway.workspace.paths import WorkspaceError, WorkspacePath
from gateway.workspace.sync.landing import Changed, copy_out, drop, place
from gateway.workspace.sync.plan import Action, Drop, Plan, Pull, Push, Retract, plan
from gateway.workspace.sync.scan import Scan, scan
from gateway.workspace.sync.state import Known, StateFile
from gateway.workspace.template import template_hashes
from gateway.workspace.tree import Workspace, Written

ROUNDS = 3
"""Others change files, too; what is left waits for the next time."""
AT_ONCE = 8
LATER = "it waits until the tools that run have ended"


class Missing(Enum):
    """What to do if most files are missing here: nothing, delete them everywhere, or fetch them again."""

    ASK = "ask"
    DELETE = "delete"
    RESTORE = "restore"


@dataclass(slots=True)
class Synced:
    """What was done, by path. `beside` names contents that lost, `problems` says why a file was left alone."""

    pushed: list[str] = field(default_factory=list)
    pulled: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    retracted: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Replica:
    """Of one person's files, which `state` remembers. `locks` watches the tools that run on them, if any may."""

    database: Database
    principal: PrincipalId
    workspace: Workspace
    locks: LockWatch | None
    store: ObjectStore
    state: StateFile
    failpoints: Failpoints = field(default_factory=lambda: Failpoints(None))
    _numbers: "count[int]" = field(default_factory=count)
    _rows: tuple[synced.Version, Mapping[str, Row]] | None = None
    _began: datetime = datetime.min
    """By the database's clock."""
    _unlabelled: set[str] = field(default_factory=set)
    _doubt: bool = False
    """Whether somebody's program may have written what has no label."""
    _base: dict[str, Content] = field(default_factory=dict)
    _scan: Scan = field(default_factory=Scan)

    async def look(self, missing: Missing = Missing.ASK) -> Plan:
        """What `sync` would do; nothing is changed."""
        async with self.state.held():
            return await self._planned(missing)

    async def sync(
        self, missing: Missing = Missing.ASK, begun: Callable[[int], Callable[[], None]] = lambda _many: lambda: None
    ) -> Synced:
        """Make both sides the same; raises `TryAgainLater` and `WorkspaceError`, what was done by then stays.

        `begun` is told of a round how many steps it has, and answers what to call after each.
        """
        done = Synced()
        async with self.state.held():
            await asyncio.to_thread(self.state.clear)
            for _ in range(ROUNDS):
                planned = await self._planned(missing)
                done.problems = {**self._scan.left_out, **planned.refused}
                try:
                    again = await self._carry_out(planned.actions, done, begun(len(planned.actions)))
                finally:
                    await asyncio.to_thread(self.state.save, Known(self._base, self._scan.files))
                if not again:
                    break
        return done

    async def _planned(self, missing: Missing) -> Plan:
        known = await asyncio.to_thread(self.state.load)
        self._scan = await asyncio.to_thread(scan, self.workspace.root, known.seen)
        rows, here = await self._map(), self._scan
        base = known.base
        if missing is Missing.RESTORE:
            base = {path: content for path, content in base.items() if path in here.files}
        deleted = missing is Missing.DELETE
        left_out, nobodys = here.left_out.keys(), template_hashes()
        decide = partial(plan, here.files, base, rows, left_out, nobodys, gone_on_purpose=deleted)
        planned = await asyncio.to_thread(decide)
        agreed = {**base, **planned.agreed}
        self._base = {path: content for path, content in agreed.items() if content is not None}
        return planned

    async def _map(self) -> Mapping[str, Row]:
        """Read again only if it has changed."""
        place_ = self.store.address.place
        async with self.database.connection() as conn:
            version, self._began = await synced.version(conn, self.principal, place_)
            if self._rows is None or self._rows[0] != version:
                self._rows = version, await synced.rows(conn, self.principal, place_)
        return self._rows[1]

    async def _carry_out(self, actions: Sequence[Action], done: Synced, after: Callable[[], None]) -> bool:
        """Whether to look again. The first error that concerns all ends it, once what is under way has ended."""
        free, failure = asyncio.Semaphore(AT_ONCE), list[TryAgainLater]()
        await self._look_for_labels(actions)
        again = False

        async def one(action: Action) -> None:
            nonlocal again
            async with free:
                try:
                    if not failure and await self._do(action, done):
                        again = True
                except Changed:
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

    async def _do(self, action: Action, done: Synced) -> bool:
        """Whether anything changed."""
        match action:
            case Push(path) if not await self._push(action, done):
                return False
            case Push(path, content):
                done.pushed.append(path)
                self._base[path] = content
            case Pull(path, content):
                await self._pull(action)
                done.pulled.append(path)
                done.beside += [action.beside] if action.beside else []
                self._base[path] = content
            case Retract(path) if not await self._retract(action, done):
                return False
            case Retract(path):
                done.retracted.append(path)
                self._base.pop(path, None)
            case Drop(path):
                await self._land(path, lambda: drop(self.workspace.root, action))
                done.deleted.append(path)
                self._base.pop(path, None)
            case _:
                assert_never(action)
        return True

    async def _push(self, push: Push, done: Synced) -> bool:
        """Whether all machines have it now; if not, it has to wait. Raises `Changed` if another one was faster."""
        if push.content.sha256 in self._unlabelled and (self._doubt or self.workspace.labels.in_doubt):
            done.problems[push.path] = LATER
            return False
        staged, written = self.state.staging(next(self._numbers)), _written(push.path, push.content)
        try:
            await asyncio.to_thread(_copied, self.workspace.root, push, staged)
            locked = await asyncio.to_thread(_is_locked, staged, push, self.locks.paths if self.locks else ())
            if self.locks and locked:
                async with self.locks.between_runs() as quiet:
                    if not quiet:
                        done.problems[push.path] = LATER
                        return False
                    await asyncio.to_thread(_copied, self.workspace.root, push, staged)
            label = await self.workspace.labels.of(written.path, written.sha256)
            await self.workspace.labels.note(written, label, "")
            await self.store.put(push.content.sha256, staged)
        finally:
            staged.unlink(missing_ok=True)
        self.failpoints.reach(Step.SYNC_STORED)
        await self._set(push.path, push.version, push.content)
        self.failpoints.reach(Step.SYNC_SET)
        return True

    async def _retract(self, retract: Retract, done: Synced) -> bool:
        if self.locks and retract.path in self.locks.paths:
            async with self.locks.between_runs() as quiet:
                if not quiet:  # it comes back when they have ended
                    done.problems[retract.path] = LATER
                    return False
        await self._set(retract.path, retract.version, None)
        return True

    async def _set(self, path: str, version: int, content: Content | None) -> None:
        compare = partial(
            synced.compare_and_set,
            principal=self.principal,
            place=self.store.address.place,
            path=path,
            version=version,
            content=content,
            stored_after=self._began,
        )
        if not await self.database.run(compare):
            raise Changed(WorkspacePath.parse(path))

    async def _pull(self, pull: Pull) -> None:
        staged = self.state.staging(next(self._numbers))
        try:
            await self.store.fetch(pull.content.sha256, pull.content.size, staged)
            self.failpoints.reach(Step.SYNC_FETCHED)
            await self._land(pull.path, lambda: self._place(pull, staged), pull.content)
            self.failpoints.reach(Step.SYNC_PLACED)
        finally:
            staged.unlink(missing_ok=True)

    async def _land(self, path: str, work: Callable[[], None], content: Content | None = None) -> None:
        """Change a file as its owner does elsewhere: locked text is taken as it comes, labels are known before."""
        labels = self.workspace.labels
        async with self.workspace.writing:
            if content:
                await labels.note(_written(path, content), Label.UNTRUSTED, "")
                await self.workspace.noted(await labels.of(path, content.sha256))
            await self.workspace.in_writer(lambda: self._taken(path, work))

    def _taken(self, path: str, work: Callable[[], None]) -> None:
        work()
        self.workspace.accept(path)

    def _place(self, pull: Pull, staged: Path) -> None:
        if pull.content.size <= MAX_LOCKED_BYTES:
            self.workspace.before_edit(staged.read_bytes())
        place(self.workspace.root, pull, staged)


def _written(path: str, content: Content) -> Written:
    return Written(path, content.size, content.sha256)


def _copied(root: Path, push: Push, to: Path) -> None:
    with to.open("wb") as staged:
        copy_out(root, push.path, push.content, staged)


def _is_locked(staged: Path, push: Push, locked: Sequence[str]) -> bool:
    """Whether it has text that only its owner may change, or had before."""
    return push.path in locked or (push.content.size <= MAX_LOCKED_BYTES and bool(locked_parts(staged.read_bytes())))
