"""Starts commands in the jail and follows them: the only way in which the gateway runs other programs."""

import asyncio
import os
import secrets
import shutil
import socket
import sys
import tempfile
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from gateway.beside import at_most
from gateway.domain.errors import SupaclawError
from gateway.sandbox.command import MAX_REQUEST_BYTES, Command, Ending, Limits, Report, Tier, Window, parse_report
from gateway.sandbox.jail import landlock, seccomp

_ROOT = Path(__file__).parents[2]
_PIECE = 64 * 1024
_END_SECONDS = 10.0
_PROXY_PORT = 3128
_PORTS = range(10_000, 32_000)
"""Below the range that the kernel uses for connections."""


class NoJail(SupaclawError):
    """This machine cannot confine a command; the text says why, and what to do."""


class NoNetwork(NoJail):
    """Commands can be confined, but not with a network."""


@dataclass(slots=True)
class Running:
    """A running command."""

    output: asyncio.StreamReader
    _reading: tuple[asyncio.ReadTransport, ...]
    _control: socket.socket
    input: asyncio.WriteTransport | None = None
    """Its standard input; None if it has none."""
    errors: asyncio.StreamReader | None = None
    """Its standard error; None if it is part of the output."""
    closing: list[Callable[[], None]] = field(default_factory=list)
    """Called by `close`."""
    _ended: Report | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield its output until it and all it started have ended."""
        with suppress(OSError):  # the end of a terminal
            while piece := await self.output.read(_PIECE):
                yield piece

    async def followed(self, keep: Callable[[bytes], object], most: int) -> Report:
        """Pass on its output until its end, or until it has more than `most` bytes; returns how it ended."""
        size = 0
        async for piece in self.pieces():
            keep(piece)
            size += len(piece)
            if size > most:
                self.cancel()
                return Report(Ending.OUTPUT)
        return await self.report()

    async def last_errors(self, most: int) -> bytes:
        """The last bytes of its standard error, once that has ended."""
        assert self.errors is not None, "it has a stream of its own"
        last = b""
        while piece := await self.errors.read(most):
            last = (last + piece)[-most:]
        return last

    async def listener(self) -> socket.socket | None:
        """The listening socket on the loopback of a command with network; None if it didn't start. Call it once."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._control.fileno(), readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._control.fileno())
        body, descriptors, *_ = socket.recv_fds(self._control, _PIECE, 1)
        if not descriptors:
            self._ended = parse_report(body)
            return None
        try:
            listener = socket.socket(fileno=descriptors[0])
        except OSError as error:
            os.close(descriptors[0])
            raise NoNetwork("the process that runs commands has passed something other than a socket") from error
        return listener

    async def report(self) -> Report:
        """Wait for its end; returns how it ended."""
        if self._ended is None:
            body = b""
            with suppress(OSError):
                body = await asyncio.get_running_loop().sock_recv(self._control, _PIECE)
            self._ended = parse_report(body)
        return self._ended

    def cancel(self) -> None:
        """Have it and all it started killed, without waiting."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    async def kill(self) -> None:
        """Have it and all it started killed, wait until none of them writes files any more, and close."""
        self.cancel()
        async with at_most(_END_SECONDS):
            await self.report()
        self.close()

    def close(self) -> None:
        """Close its pipes without waiting for its end; the jail then kills what is left."""
        for each in self._reading:
            each.close()
        self._control.close()
        if self.input is not None and not self.input.is_closing():
            self.input.abort()
        for clean in self.closing:
            clean()


@dataclass(slots=True)
class Workshop:
    """The jail of this machine. The first command starts the process that starts commands; `scratch` is private."""

    guards_instructions: ClassVar[bool] = True
    """Whether no command can change the agent's instructions, which then need not be compared afterwards."""
    scratch: Path
    landlock: int = field(default_factory=landlock.abi)
    without: frozenset[Tier] = frozenset()
    """Tiers to skip."""
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _zygote: asyncio.subprocess.Process | None = None
    _requests: socket.socket | None = None
    _tier: Tier | None = None
    _zygote_flags: tuple[str, ...] = ()

    async def network(self) -> str:
        """The address for `Command.network` at which a command reaches the gateway; raises `NoNetwork`."""
        return f"127.0.0.1:{_PROXY_PORT}" if await self.tier() is Tier.NAMESPACES else hidden_address()

    async def require_privacy(self) -> None:
        """Raise `NoJail` if a command can't have files that no other command reaches."""
        await self.tier()

    def folder(self, until: ExitStack) -> str:
        """Make a private folder, which `until` deletes. Blocks."""
        self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = tempfile.mkdtemp(dir=self.scratch)
        until.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def missing(self) -> str:
        """Why no tier can work here; "" if one may. Fast."""
        if not seccomp.supported():
            return "this kernel does not filter system calls (seccomp); use Linux 5.13 or newer on x86-64 or ARM64"
        if not self.landlock:
            return "this kernel has no Landlock; use Linux 5.13 or newer with `landlock` among its security modules"
        return ""

    async def tier(self) -> Tier:
        """The strongest tier that works; raises `NoJail`."""
        if self._tier is None:
            self._tier = await self._probed()
        return self._tier

    async def start(
        self, command: Command, *, typed: bool = False, apart: bool = False, window: Window | None = None
    ) -> Running:
        """Start a command; `typed`: it has an input. Output and errors are one stream unless `apart`.

        With a `window`, a typed one has a terminal of this size instead of pipes.
        """
        pipes = [os.openpty() if window else os.pipe() for _ in range(2 if apart else 1)]
        control, control_there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if window:
            termios.tcsetwinsize(pipes[0][1], window)
            source, writes = pipes[0][1], os.dup(pipes[0][0])
        else:
            source, writes = os.pipe() if typed else (os.open(os.devnull, os.O_RDONLY), -1)
        there = [source, pipes[0][1], pipes[-1][1], control_there.fileno()]
        try:
            await self.send(command, there)
        except BaseException:
            for each in (*(reads for reads, _ in pipes), control.detach(), *([writes] if typed else [])):
                os.close(each)
            raise
        finally:
            control_there.detach()
            for each in set(there):
                os.close(each)
        control.setblocking(False)
        streams = [await _reader(reads) for reads, _ in pipes]
        running = Running(streams[0][0], tuple(each for _, each in streams), control)
        running.errors = streams[1][0] if apart else None
        if window:
            running.input = _TerminalInput(writes)
        elif typed:
            pipe, loop = os.fdopen(writes, "wb", 0), asyncio.get_running_loop()
            running.input, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, pipe)
        return running

    async def close(self) -> None:
        """Kill all commands."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._zygote is not None:
            with suppress(ProcessLookupError):
                self._zygote.kill()
            await self._zygote.wait()
            self._zygote = None

    async def send(self, command: Command, descriptors: list[int]) -> None:
        """Start a command with its input, output, errors and the socket for its report."""
        request = check_size(command.packed())
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
                *(sys.executable, "-P", "-m", "gateway.sandbox.jail.zygote", str(there.fileno()), *self._zygote_flags),
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
        elif Tier.LANDLOCK in self.without or (why := await self._tried(Tier.LANDLOCK)):
            why = "and the jail without them fails, too"
        else:
            return Tier.LANDLOCK
        raise NoJail(f"user namespaces do not work here ({problem}), {why}")

    async def _tried(self, tier: Tier) -> str:
        """Why commands can't run in this tier; "" if they can."""
        with tempfile.TemporaryDirectory(dir=self.scratch if self.scratch.is_dir() else None) as folder:
            limits = Limits(seconds=10, spare_disk_bytes=0, spare_percent=0)
            command = Command(("/bin/sh", "-c", "exit 7"), folder, tier, self.landlock, scratch=folder, limits=limits)
            with closing(await self.start(command)) as running:
                ended = await running.report()
        if ended.ending is Ending.EXITED and ended.code == 7:
            return ""
        return ended.problem or f"a command {ended.ending} with {ended.code}"


def check_size(request: bytes) -> bytes:
    """Return the request; raises `NoJail` if it is too long."""
    if len(request) > MAX_REQUEST_BYTES:
        raise NoJail("the command is too long; put its text into a file and pass the path")
    return request


def hidden_address() -> str:
    """An address on a loopback that others share, which they can't guess."""
    own = (secrets.randbelow(254) + 1 for _ in range(3))
    return f"127.{'.'.join(map(str, own))}:{_PORTS[secrets.randbelow(len(_PORTS))]}"


class _TerminalInput(asyncio.WriteTransport):
    """The input of a terminal, at our end of it; the loop's own transport would take the output for its end."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._file, self._unsent = os.fdopen(descriptor, "wb", 0), 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with suppress(OSError):  # nobody reads it any more
            self._unsent = len(data) - (self._file.write(data) or 0)

    def get_write_buffer_size(self) -> int:
        """The bytes of the last write that the terminal has not taken, and never will."""
        return self._unsent

    def is_closing(self) -> bool:
        return self._file.closed

    def abort(self) -> None:
        self._file.close()


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    stream = asyncio.StreamReader(_PIECE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(descriptor, "rb", 0)
    )
    return stream, transport
