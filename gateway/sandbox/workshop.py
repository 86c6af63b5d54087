"""Starts commands in the jail and follows them; the gateway's one door to programs that are not its own."""

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway.domain.errors import SupaclawError
from gateway.sandbox import landlock, seccomp
from gateway.sandbox.command import MAX_REQUEST_BYTES, Command, Ending, Limits, Report, Tier, report

LEAST_WITHOUT_NAMESPACES = landlock.SIGNALS_SINCE
"""Of Landlock: before it, a command of the same user can signal the gateway."""
_ROOT = Path(__file__).parents[2]
_PIECE = 64 * 1024


class NoJail(SupaclawError):
    """This machine cannot confine a command; the text says why, and what to do."""


@dataclass(slots=True)
class Running:
    """A command under way."""

    output: asyncio.StreamReader
    _reading: asyncio.ReadTransport
    _control: socket.socket
    after: Callable[[], None] | None = None
    """What to do once it is closed."""
    _ended: Report | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield what it writes, until it and all it started are gone."""
        while piece := await self.output.read(_PIECE):
            yield piece

    async def report(self) -> Report:
        """How it ended, once it has."""
        if self._ended is None:
            body = b""
            with suppress(OSError):
                body = await asyncio.get_running_loop().sock_recv(self._control, _PIECE)
            self._ended = report(body)
        return self._ended

    def cancel(self) -> None:
        """Have it and all it started killed."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """The same, without caring how it ends."""
        self._reading.close()
        self._control.close()
        if self.after is not None:
            self.after()


@dataclass(slots=True)
class Workshop:
    """The jail of this machine. What starts the commands is itself started by the first one; `scratch` is private."""

    scratch: Path
    landlock: int = field(default_factory=landlock.abi)
    without: frozenset[Tier] = frozenset()
    """Tiers that are not tried."""
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _zygote: asyncio.subprocess.Process | None = None
    _requests: socket.socket | None = None
    _tier: Tier | None = None
    _zygote_flags: tuple[str, ...] = ()

    @property
    def keeps_instructions(self) -> bool:
        """Whether no command can change the agent's instructions, so that nobody has to compare them afterwards."""
        return True

    def missing(self) -> str:
        """Why no tier can work here; "" if one may. Costs nothing."""
        if not seccomp.supported():
            return "this kernel does not filter system calls (seccomp); use Linux 5.13 or newer on x86-64 or ARM64"
        if not self.landlock:
            return "this kernel has no Landlock; use Linux 5.13 or newer with `landlock` among its security modules"
        return ""

    async def tier(self) -> Tier:
        """The strongest that works; raises `NoJail`."""
        if self._tier is None:
            self._tier = await self._probed()
        return self._tier

    async def start(self, command: Command) -> Running:
        """Start a command without input; its output and its errors come as one stream."""
        reads, there = os.pipe()
        control, control_there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            await self._send(command.packed(), [nothing, there, control_there.fileno()])
        except BaseException:
            for each in (reads, control.detach()):
                os.close(each)
            raise
        finally:
            for each in (there, nothing, control_there.detach()):
                os.close(each)
        control.setblocking(False)
        output = asyncio.StreamReader(_PIECE)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reads, "rb", 0)
        )
        return Running(output, transport, control)

    async def close(self) -> None:
        """End all commands."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._zygote is not None:
            with suppress(ProcessLookupError):
                self._zygote.kill()
            await self._zygote.wait()
            self._zygote = None

    async def _send(self, request: bytes, descriptors: list[int]) -> None:
        if len(request) > MAX_REQUEST_BYTES:
            raise NoJail("the command is too long; put its text into a file and pass the path")
        async with self._starting:
            if self._requests is None or self._zygote is None or self._zygote.returncode is not None:
                await self._start_zygote()
            assert self._requests is not None
            await asyncio.to_thread(socket.send_fds, self._requests, [request], descriptors)

    async def _start_zygote(self) -> None:
        if self._requests is not None:
            self._requests.close()
        self._requests, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            self._requests.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_REQUEST_BYTES)
            self._zygote = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "gateway.sandbox.zygote", str(there.fileno()), *self._zygote_flags),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                cwd="/",
                env={"PYTHONPATH": str(_ROOT), "LANG": "C.UTF-8"},
                pass_fds=(there.fileno(),),
                start_new_session=True,
            )

    async def _probed(self) -> Tier:
        if problem := self.missing():
            raise NoJail(problem)
        problem = "it is not tried"
        if Tier.NAMESPACES not in self.without and not (problem := await self._tried(Tier.NAMESPACES)):
            return Tier.NAMESPACES
        if os.getuid() == 0:
            why = "and a command of root's needs them; run the gateway as a user of its own"
        elif self.landlock < LEAST_WITHOUT_NAMESPACES:
            why = f"and Landlock {self.landlock} cannot confine signals; allow namespaces, or use Linux 6.12 or newer"
        elif Tier.LANDLOCK in self.without or (why := await self._tried(Tier.LANDLOCK)):
            why = "and the jail without them fails, too"
        else:
            return Tier.LANDLOCK
        raise NoJail(f"user namespaces do not work here ({problem}), {why}")

    async def _tried(self, tier: Tier) -> str:
        """Why a command does not run in it; "" if one does."""
        with tempfile.TemporaryDirectory(dir=self.scratch if self.scratch.is_dir() else None) as folder:
            limits = Limits(seconds=10, spare_disk_bytes=0)
            command = Command(("/bin/sh", "-c", "exit 7"), folder, tier, self.landlock, scratch=folder, limits=limits)
            running = await self.start(command)
            try:
                ended = await running.report()
            finally:
                running.close()
        if ended.ending is Ending.EXITED and ended.code == 7:
            return ""
        return ended.problem or f"a command {ended.ending} with {ended.code}"
