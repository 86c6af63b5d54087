"""Commands on the files of a workspace: what one may see, the label of its output, and what it changed."""

import asyncio
import hashlib
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gateway.agent.exec.shown import shown_digest
from gateway.agent.exec.terminal import NAME
from gateway.domain.conversation.tools import Change, ToolFailed
from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.domain.text.texts import first_of
from gateway.net import proxy
from gateway.net.addresses import Rules
from gateway.sandbox.command import MAX_REQUEST_BYTES, Command, Ending, Limits, Report, Tier, Window
from gateway.sandbox.workshop import NoJail, Running, Workshop
from gateway.workspace.files.disk import measure
from gateway.workspace.files.index import Changes, Snapshot
from gateway.workspace.files.pages import MOST
from gateway.workspace.files.paths import INSTRUCTIONS, READ_ONLY, WorkspaceError, WorkspacePath, folded
from gateway.workspace.files.tree import Workspace
from gateway.workspace.files.uploads import UPLOADS
from gateway.workspace.journal.files import INDEX
from gateway.workspace.locks import LockWatch

AT_ONCE = 4
"""Commands of `exec`; more wait."""
MAX_HIDDEN = 64
"""Single files; with more of them, what a command answers counts as others' words."""
LABELS_AT_ONCE = 10_000
"""Contents in one question about their labels."""
MAX_LOCKED = 500
"""Files that are read-only for their locked text; in more of them it is only put back."""
_APART = frozenset({*READ_ONLY, UPLOADS})
"""Folders whose files get their labels elsewhere."""
_SHELLS = ("/bin/bash", "/bin/sh")
STALE = "Something that the command can see was changed after you were asked, so nothing was run; ask again."


@dataclass(slots=True)
class Permit:
    """The files that a command may see; after it ended, its changes and whether its output and files are untrusted."""

    before: Snapshot
    hidden: tuple[str, ...]
    untrusted: bool
    changes: Changes | None = None
    """None: too much to tell."""
    running: Running | None = None
    """Ends at the latest with the permit."""

    @property
    def label(self) -> Label:
        """Of its output."""
        return Label.UNTRUSTED if self.untrusted else Label.OWNER


@dataclass(slots=True)
class WorkspaceCommands:
    """Runs commands in the jail, with one workspace. `own` is the label of its person; `mode` as configured."""

    workshop: Workshop
    workspace: Workspace
    own: Label
    mode: Callable[[], str]
    rules: Callable[[], Rules]
    """Of the net, for commands that reach it."""
    locks: LockWatch
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _open: list[Permit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workspace.noted = self._noted

    def offered(self) -> bool:
        """Whether there is any point in telling the model of it."""
        return self.mode() != "off" and not self.workshop.missing()

    @asynccontextmanager
    async def permit(self, label: Label, *, lasting: bool = False) -> AsyncIterator[Permit]:
        """For one command of a run of this label; afterwards what it did. Files have the right label at all times.

        A `lasting` one, which outlives the run, never sees journals unless it is untrusted: others may come.
        """
        with _explained():
            permit = await self._permit(label, lasting=lasting)
        try:
            yield permit
        finally:
            # A turn that is stopped must not leave files without labels.
            await asyncio.shield(asyncio.ensure_future(self._finish(permit)))

    @asynccontextmanager
    async def queued(self, label: Label) -> AsyncIterator[Permit]:
        """The same for a command that waits for its turn; raises `ToolFailed` if what it can see changes meanwhile."""
        before = await self.seen() if self.slots.locked() or not self.workspace.index.complete else None
        async with self.slots, self.permit(label) as permit:
            if before is not None and await self.seen() != before:
                raise ToolFailed.own("changed", STALE)
            yield permit

    async def taint(self, permit: Permit) -> None:
        """The command gets others' words now: so may its own, and those of all that runs beside it."""
        async with self.workspace.writing:
            if not permit.untrusted:
                await self._taint_open()

    async def start_script(
        self,
        words: Sequence[str],
        files: Mapping[str, bytes],
        given: bytes,
        permit: Permit,
        limits: Limits,
        hosts: Sequence[str] = (),
    ) -> Running:
        """Start a program with an input, errors apart; words that name one of the files become its path."""
        with ExitStack() as temporary:
            kept = await asyncio.to_thread(self._written, files, temporary)
            paths = tuple(os.path.join(kept, word) if word.removeprefix("./") in files else word for word in words)
            running = await self.start(paths, ".", permit, limits, hosts, reads=(kept,), typed=True, apart=True)
            running.closing.append(temporary.pop_all().close)
        assert running.input is not None, "it was asked for"
        running.input.write(given)
        running.input.write_eof()
        return running

    async def start(
        self,
        line: str | tuple[str, ...],
        folder: str,
        permit: Permit,
        limits: Limits,
        hosts: Sequence[str] = (),
        *,
        reads: tuple[str, ...] = (),
        typed: bool = False,
        apart: bool = False,
        window: Window | None = None,
    ) -> Running:
        """Start a line of shell, or the words of a program, in a folder; raises `ToolFailed`.

        `typed`: it has an input. `apart`: its errors have a stream of their own. `window`: it has a terminal.
        """
        with _explained():
            where = WorkspacePath.parse(folder)
            tier = await self.workshop.tier()
        locked = tuple(each for each in (await self.locks.files())[:MAX_LOCKED] if each not in permit.hidden)
        closed = await asyncio.to_thread(_closed, str(self.workspace.root))
        landlocked = tier is Tier.LANDLOCK
        with ExitStack() as temporary, _explained():
            command = Command(
                (next(filter(os.path.exists, _SHELLS), _SHELLS[-1]), "-c", line) if isinstance(line, str) else line,
                str(self.workspace.root),
                tier,
                self.workshop.landlock,
                str(where),
                {"TERM": NAME} if window else {},
                read_only=locked if landlocked else (*closed, *locked),
                hidden=(*permit.hidden, *(closed if landlocked else ())),
                reads=reads,
                scratch=await asyncio.to_thread(self.workshop.folder, temporary) if landlocked else "",
                limits=limits,
            )
            if len(command.packed()) > MAX_REQUEST_BYTES:
                raise ToolFailed.own("too_long", "The command is too long; write it to a file and run that.")
            permit.running = running = await proxy.start(
                self.workshop, command, hosts, self.rules, typed=typed, apart=apart, window=window
            )
            running.closing.append(temporary.pop_all().close)
        return running

    async def reached(self, hosts: Sequence[str]) -> str:
        """Which network a command has, as a person is asked for it; raises `ToolFailed` where it can't have any."""
        with _explained():
            found = proxy.destinations(hosts)
            if not found:
                return "without network"
            await proxy.network_address(self.workshop)
        return f"which can send anything in the workspace to {', '.join(map(str, found))}, and to no other host"

    async def change(self, line: str, folder: str, hosts: Sequence[str] = ()) -> Change:
        """The change to approve before the command runs; an approval holds while `seen` is the same."""
        where = "" if folder == "." else f" in {folder}"
        preview = f"Run this command{where}, {await self.reached(hosts)}:\n{line}"
        return Change(preview, await self.seen(line, folder), STALE)

    async def seen(self, line: str = "", folder: str = ".") -> str:
        """A hash that is another once a run trusted less than its person has changed any file, or a named one changed.

        What the owner, or the gateway by itself, changes elsewhere doesn't count.
        """
        async with self.workspace.writing:  # what is noted already is about to be written
            running = [each.before for each in self._open if each.untrusted and each.running]
            change, elsewhere = await self.workspace.labels.last_change()  # has what those wrote that end meanwhile
        written = await asyncio.to_thread(self._written_by, running, elsewhere) if running or elsewhere else ""
        shown = await asyncio.to_thread(shown_digest, self.workspace.root, line, folder)
        return hashlib.sha256(f"{change} {written} {shown}".encode()).hexdigest()

    def _written_by(self, running: Sequence[Snapshot], elsewhere: bool) -> str:
        """A hash of what commands that still run have changed, by the files at their start; "" if that is nothing.

        Contents count, since a mapping of memory changes a file again without a change of its state. `elsewhere`:
        commands of other processes may have, too. Blocks.
        """
        now = self.workspace.index.snapshot(_is_apart)
        changes = [before.changes(now) for before in running if before.files != now.files]
        if not self.workspace.index.tells_changes() or not (changes or elsewhere):
            return "" if self.workspace.index.tells_changes() else secrets.token_hex()
        digest = hashlib.sha256(repr(sorted(now.files.items())).encode())
        for path in {path for each in changes for path in (*each.new, *each.changed)}:
            with suppress(WorkspaceError):
                digest.update(measure(self.workspace.root, path, MOST).sha256.encode())
        return digest.hexdigest()

    async def look(self) -> tuple[Snapshot, Mapping[str, str]]:
        """The files as they are now, and their hashes; those that can't be read have "".

        The first look reads everything, which a caller that is cancelled stops; what was read by then is remembered.
        """
        index, stop = self.workspace.index, threading.Event()

        def look() -> tuple[Snapshot, Mapping[str, str]]:
            found = index.snapshot(_is_apart)
            return found, index.hashes(found.files, stop)

        try:
            return await asyncio.to_thread(look)
        except asyncio.CancelledError:
            stop.set()
            raise

    async def _permit(self, label: Label, *, lasting: bool) -> Permit:
        if self.mode() == "off":
            raise ToolFailed.own("off", "Commands are switched off here (tools.exec.mode).")
        tier = await self.workshop.tier()
        if not self.workspace.index.complete:
            await self.look()  # the long one, while others may still write
        async with self.workspace.writing:  # what is written meanwhile would be seen
            before, hashes = await self.look()
            hidden = await self._others(hashes, lasting=lasting)
            clean = label <= self.own and tier is Tier.NAMESPACES and len(hidden) <= MAX_HIDDEN and before.whole
            permit = Permit(before, hidden, untrusted=False)
            if not clean or any(each.untrusted for each in self._open):
                await self.workspace.labels.begin_command(_readable(hashes))
                permit = Permit(before, (), untrusted=True)
                await self._taint_open(listed=True)  # what runs beside it may read from now on what it writes
            self._open.append(permit)
            self.workspace.index.programs += 1
        return permit

    async def _noted(self, label: Label, filed: bool) -> None:
        """Others' words are about to be written into a file that was not there to be hidden."""
        if label > self.own:
            await self._taint_open()
            if not filed:
                await self.workspace.labels.note_change()

    async def _taint_open(self, *, listed: bool = False) -> None:
        """`listed`: the labels know what was there before."""
        listed = listed or any(each.untrusted for each in self._open)
        for each in [each for each in self._open if not each.untrusted]:
            await self.workspace.labels.begin_command(() if listed else _readable((await self.look())[1]))
            each.untrusted = listed = True

    async def _others(self, hashes: Mapping[str, str], *, lasting: bool) -> tuple[str, ...]:
        """Paths hidden from a trusted run: uploads, unreadable files, and files that are less trusted than the person.

        Also the gateway's own folders if the run is `lasting` or their index is less trusted.
        """
        labels = self.workspace.labels
        known, others = list(_readable(hashes)), dict[str, Label]()
        for at in range(0, len(known), LABELS_AT_ONCE):
            others |= await labels.less_trusted(known[at : at + LABELS_AT_ONCE])
        journals = READ_ONLY if lasting or await labels.of(INDEX, "") > self.own else ()
        return (UPLOADS, *journals, *(path for path, sha256 in hashes.items() if not sha256 or sha256 in others))

    async def _finish(self, permit: Permit) -> None:
        if permit.running:
            await permit.running.kill()
        index, wrote = self.workspace.index, True
        try:
            permit.changes, written, wrote = await asyncio.to_thread(self._changes, permit)
        except WorkspaceError:
            index.forget(None)
            return  # what has no label stays untrusted until the next start lists it
        finally:
            index.programs -= 1
            if permit.untrusted and wrote:
                await self.workspace.labels.note_change()
            self._open.remove(permit)  # only now: until then a question looks at what it wrote
        if permit.untrusted:
            await self.workspace.labels.end_command(written)
        await asyncio.to_thread(partial(index.save, due=True))

    def _changes(self, permit: Permit) -> tuple[Changes, Collection[str], bool]:
        """A command's changes; if it is untrusted, the hashes of what it may have written; whether it may have changed
        anything. Blocks.
        """
        index, after = self.workspace.index, self.workspace.index.snapshot(_is_apart)
        changes = permit.before.changes(after)
        touched = (*changes.new, *changes.changed)
        told = index.tells_changes() or not permit.untrusted
        index.forget(touched if told else None)
        written = {path: after.files[path] for path in touched} if told else after.files
        wrote = bool(not told or touched or changes.deleted)
        return changes, _readable(index.hashes(written)) if permit.untrusted else (), wrote

    def _written(self, files: Mapping[str, bytes], until: ExitStack) -> str:
        """A folder of exactly these; theirs may change before they are read."""
        kept = self.workshop.folder(until)
        for name, data in files.items():
            path = Path(kept, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o500)
        return kept


def _is_apart(parts: tuple[str, ...]) -> bool:
    return parts[0] in _APART


def _readable(hashes: Mapping[str, str]) -> Collection[str]:
    return set(filter(None, hashes.values()))


def _closed(root: str) -> tuple[str, ...]:
    """Names at the top that belong to the gateway, or that the agent follows as instructions."""
    return tuple(name for name in os.listdir(root) if folded(name) in {*READ_ONLY, *INSTRUCTIONS})


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except NoJail as error:
        message = f"Commands can't be confined on this machine, so none runs: {error}."
        raise ToolFailed.own("no_jail", message) from error


MAX_NAMED_FILES = 30
"""Files of each kind that an answer names."""


def command_ending(report: Report, seconds: int, flood_bytes: int) -> dict[str, Json]:
    """Its exit code, or why it has none."""
    words = {
        Ending.TIMEOUT: f"It took longer than {seconds} s and was ended. Give it more seconds.",
        Ending.MEMORY: "It took more memory than it may and was ended.",
        Ending.PROCESSES: "It started more processes than it may and was ended.",
        Ending.DISK: "It filled the disk and was ended; delete what it left.",
        Ending.OUTPUT: f"It wrote more than {flood_bytes // 1024**2} MB and was ended; send its output to a file.",
    }
    if report.ending is Ending.EXITED:
        return {"exit_code": report.code}
    return {"exit_code": None, "ended": words.get(report.ending, report.problem or "It was ended.")}


def changed_files(permit: Permit) -> dict[str, Json]:
    """The files that the command changed, as the tool's result shows them to the model."""
    if permit.changes is None:
        return {"files": "too many to tell what changed"}
    kinds = {"new": permit.changes.new, "changed": permit.changes.changed, "deleted": permit.changes.deleted}
    found = {kind: first_of(paths, MAX_NAMED_FILES) for kind, paths in kinds.items() if paths}
    return {"files": found} if found else {}
