"""Commands that outlive the turn that started them: their output, their input, their end."""

import asyncio
import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import structlog

from gateway.agent.exec.commands import Permit, WorkspaceCommands
from gateway.agent.exec.terminal import Screen
from gateway.beside import at_most, beside
from gateway.domain.conversation.tools import Caller, ToolFailed
from gateway.domain.ids import SessionId
from gateway.domain.principals import Label
from gateway.sandbox.command import Ending, Limits, Report, Window
from gateway.sandbox.workshop import Running
from gateway.workspace.files.index import Snapshot

MAX_RUNNING = 4
MAX_ENDED = 12
"""Ended processes whose output can still be read; older ones are forgotten."""
KEPT_BYTES = 256 * 1024
"""Of the output of each."""
MAX_UNREAD_BYTES = 64 * 1024
"""Of input that a process has not taken yet."""
CPU_SECONDS = 3600
_PIECE_SECONDS = 0.01
"""Between two pieces of output: an endless one must not keep the gateway busy."""
_PAUSE_SECONDS = 0.2
"""Without output, after which a screen counts as drawn."""
_LOCKS_SECONDS = 5.0
_END_SECONDS = 10.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class BoundedOutput:
    """The first and the last bytes of an output; `size` counts those between, too, which are dropped."""

    head_bytes: int
    tail_bytes: int
    size: int = 0
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)

    def add(self, piece: bytes) -> None:
        """Append a piece."""
        self.size += len(piece)
        room = self.head_bytes - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        del self._tail[: -self.tail_bytes]

    def text(self) -> str:
        """All that was kept, with a note of what was dropped; bytes that aren't UTF-8 are replaced."""
        dropped = self.size - len(self._head) - len(self._tail)
        between = f"\n[... {dropped:,} bytes are left out ...]\n".encode() if dropped else b""
        return (self._head + between + self._tail).decode("utf-8", "replace")

    def page(self, since: int, limit: int, *, whole: bool) -> tuple[str, int, int]:
        """Text of the end from a place on, how many bytes were dropped before it, and the place after it.

        A character that is cut waits for its rest, unless the output is `whole`.
        """
        first = self.size - len(self._tail)
        at = min(max(since, first), self.size)
        piece = bytes(self._tail[at - first : at - first + limit])
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(piece, final=whole and at + len(piece) == self.size)
        return text, max(0, at - since), at + len(piece) - len(decoder.getstate()[0])


@dataclass(slots=True, eq=False)
class Process:
    """One of them. Its `report` says that it is over, and its permit what it changed."""

    id: str
    line: str
    session: SessionId
    seconds: int
    screen: Screen | None = None
    """Of its terminal, if it has one, as last drawn."""
    output: BoundedOutput = field(default_factory=lambda: BoundedOutput(0, KEPT_BYTES))
    read: int = 0
    """How far its output was told."""
    permit: Permit | None = None
    """None until it has started."""
    outcome: Report = field(default_factory=lambda: Report(Ending.CANCELLED))
    """Unless it ends by itself."""
    report: Report | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _drawing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def label(self) -> Label:
        """Of its output, and of its command line."""
        return self.permit.label if self.permit else Label.UNTRUSTED

    async def until_news(self, since: int, seconds: float) -> None:
        """Wait until there is output after `since`, or it is over, but no longer than this."""
        async with at_most(seconds):
            while self.output.size <= since and self.report is None:
                self._news.clear()
                await self._news.wait()

    async def until_drawn(self, screen: Screen, seconds: float) -> Screen:
        """Wait as with `until_news`, and on until it pauses; returns what its terminal shows then."""
        async with at_most(seconds):
            await self.until_news(self.read, seconds)
            size = -1
            while self.report is None and size != self.output.size:
                size = self.output.size
                await asyncio.sleep(_PAUSE_SECONDS)
        async with self._drawing:
            text, _, self.read = self.output.page(self.read, KEPT_BYTES, whole=self.report is not None)
            await asyncio.to_thread(screen.feed, text)
        return screen

    async def follow(self, running: Running) -> None:
        """Keep what it writes, to its end."""
        async for piece in running.pieces():
            self.output.add(piece)
            self._news.set()
            await asyncio.sleep(_PIECE_SECONDS)
        self.outcome = await running.report()

    def end(self) -> None:
        """It is over; what it did is known."""
        self.report = self.outcome
        if self.permit:
            self.permit = replace(self.permit, before=Snapshot({}, whole=True), running=None)
        self._news.set()


@dataclass
class Processes:
    """Of the owner. They end with the gateway, and count as runs of a tool for locked text."""

    commands: WorkspaceCommands
    _known: dict[str, Process] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def all(self) -> Sequence[Process]:
        """Those that run, and the last that have ended."""
        return tuple(self._known.values())

    def get(self, id: str) -> Process | None:
        """None for one that is unknown: it ended long ago, or its gateway did."""
        return self._known.get(id)

    async def start(self, line: str, seconds: int, caller: Caller, screen: Screen | None = None) -> Process:
        """Start one that may run for so long, in a terminal if it has a screen; raises `ToolFailed`."""
        process = Process(f"{str(caller.task)[:8]}-{caller.ordinal}", line, caller.session, seconds, screen)
        if process.id in self._known:
            raise ToolFailed.own("started", f"This call has started {process.id} already; poll it.")
        if len(self._tasks) >= MAX_RUNNING:
            raise ToolFailed.own("too_many", f"{MAX_RUNNING} processes run already; kill one of them first.")
        for old in [each.id for each in self.all if each.report][: -MAX_ENDED + 1]:
            del self._known[old]
        self._known[process.id] = process
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._live(process, caller.label, started), name=f"process {process.id}")
        self._tasks[process.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(process.id, None))
        await asyncio.shield(started)
        return process

    async def write(self, process: Process, text: str, label: Label, *, end: bool) -> None:
        """Hand it input from a run of this label; raises `ToolFailed`."""
        if process.permit and label > self.commands.own:
            await self.commands.taint(process.permit)
        running = process.permit.running if process.permit else None
        to = running.input if running else None
        if to is None or to.is_closing():
            raise ToolFailed("no_input", f"{process.id} takes no more input; poll it.", process.label)
        if process.screen is None and to.get_write_buffer_size() > MAX_UNREAD_BYTES:
            raise ToolFailed("busy", f"{process.id} does not read its input; nothing was written.", process.label)
        to.write(data := text.encode("utf-8", "replace"))
        if process.screen and (unsent := to.get_write_buffer_size()):
            message = f"It took the first {len(data) - unsent:,} bytes only; type the rest once it has read them."
            raise ToolFailed("busy", message, process.label)
        if end:
            to.write_eof()

    async def kill(self, process: Process) -> None:
        """End it and all that it started; returns once they are gone."""
        if process.permit and process.permit.running:
            process.permit.running.cancel()
        if task := self._tasks.get(process.id):
            await asyncio.wait([task], timeout=_END_SECONDS)

    def kill_all(self, session: SessionId) -> None:
        """Those that this session has started, without waiting."""
        for process in self.all:
            if process.session == session and process.id in self._tasks:
                self._tasks[process.id].cancel()

    def count(self, session: SessionId) -> int:
        """How many of this session run."""
        return sum(process.session == session and process.id in self._tasks for process in self.all)

    async def close(self) -> None:
        """All of them: the gateway stops."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_SECONDS)
        await asyncio.to_thread(self.commands.workspace.index.save)

    async def _live(self, process: Process, label: Label, started: asyncio.Future[None]) -> None:
        try:
            async with self.commands.locks.running():
                await self._permitted(process, label, started)
        except Exception as error:
            if started.done():
                log.exception("process.failed", process=process.id)
            else:
                started.set_exception(error)
        finally:
            process.end()
            if not started.done():
                started.set_exception(ToolFailed.own("stopped", "The process was stopped before it had started."))
            if process.permit is None:
                del self._known[process.id]

    async def _permitted(self, process: Process, label: Label, started: asyncio.Future[None]) -> None:
        async with self.commands.permit(label, lasting=True) as permit:
            limits = Limits(seconds=process.seconds, cpu_seconds=CPU_SECONDS)
            window = Window(process.screen.height, process.screen.columns) if process.screen else None
            running = await self.commands.start(process.line, ".", permit, limits, typed=True, window=window)
            process.permit = permit
            async with beside(self._check_locks()):
                started.set_result(None)
                await process.follow(running)

    async def _check_locks(self) -> None:
        while True:
            await asyncio.sleep(_LOCKS_SECONDS)
            await self.commands.locks.check()
