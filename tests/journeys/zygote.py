"""A process that has imported the gateway and forks: reading its modules costs more than all the rest of a start.

What it forks is a gateway like any other: its own pid, environment, folder and streams, from `gateway.__main__` on.
"""

import asyncio
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import sys
import time
from asyncio import StreamReader, StreamReaderProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, Popen

PACKAGES = ("gateway", "channels.telegram", "uvicorn.lifespan")
MODULES = ("aiohttp", "anyio._backends._asyncio", "apscheduler.schedulers.asyncio", "encodings.idna", "uvloop")
"""What a gateway imports once it runs."""
LARGEST = 2**18
STREAMS = 3
"""Standard output, standard error, and where the zygote tells the pid and how the process ended."""


class Forked:
    """A process that the zygote started; to a test what asyncio's `Process` is."""

    def __init__(self, stdout: StreamReader, stderr: StreamReader, told: StreamReader, pid: int) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.create_task(self._hear(told))

    async def _hear(self, told: StreamReader) -> int:
        self.returncode = int(await told.read())
        return self.returncode

    async def wait(self) -> int:
        """How it ended, as `Process.wait` tells it."""
        return await asyncio.shield(self._ended)

    async def communicate(self) -> tuple[bytes, bytes]:
        """All that it writes."""
        out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """As kill -9."""
        self.send_signal(signal.SIGKILL)


async def fork(arguments: Sequence[str], environ: Mapping[str, str], cwd: Path) -> Forked:
    """Start `supaclaw ARGUMENTS`."""
    pipes = [os.pipe() for _ in range(STREAMS)]
    try:
        request = json.dumps({"arguments": arguments, "environ": environ, "cwd": str(cwd)}).encode()
        assert len(request) < LARGEST
        socket.send_fds(_zygote(), [request], [write for _, write in pipes])
    finally:
        for _, write in pipes:
            os.close(write)
    stdout, stderr, told = [await _reader(read) for read, _ in pipes]
    return Forked(stdout, stderr, told, int(await told.readline()))


async def _reader(descriptor: int) -> StreamReader:
    reader = StreamReader()
    pipe = os.fdopen(descriptor, "rb", 0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: StreamReaderProtocol(reader), pipe)
    return reader


@cache
def _zygote() -> socket.socket:
    """This process's own; it ends with us, for then nobody has the other end."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    command = (sys.executable, "-m", "tests.journeys.zygote", str(its.fileno()))
    with its:
        process = Popen(
            command, cwd=Path(__file__).parents[2], env=environ, pass_fds=[its.fileno()], stdin=DEVNULL, stdout=DEVNULL
        )
    process.returncode = 0  # nobody waits for it
    return ours


# --- in the zygote ---


class _Births:
    """Forks as asked, and tells how each child ended."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._told: dict[int, int] = {}
        self._woken, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def go_on(self) -> None:
        """Return only in a child, as what it shall be, or when nobody is left to ask."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes)
        while True:
            ready, *_ = select.select([self._requests, self._woken], [], [])
            if self._woken in ready:
                self._reap()
            if self._requests in ready:
                message, streams, *_ = socket.recv_fds(self._requests, LARGEST, STREAMS)
                if not message:
                    sys.exit()
                if (pid := os.fork()) == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _become(streams[:2], **json.loads(message))
                    return
                for stream in streams[:2]:
                    os.close(stream)
                self._told[pid] = streams[2]
                os.write(streams[2], b"%d\n" % pid)

    def _reap(self) -> None:
        os.read(self._woken, 512)
        while self._told:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            told = self._told.pop(pid)
            with suppress(BrokenPipeError):
                os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(told)


def _become(streams: Sequence[int], arguments: Sequence[str], environ: Mapping[str, str], cwd: str) -> None:
    """Let nothing of the zygote be left but its modules."""
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(cwd)
    sys.argv[1:] = arguments


def _read_modules() -> None:
    for package in map(importlib.import_module, PACKAGES):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    for name in MODULES:
        importlib.import_module(name)
    build_in_advance()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from gateway.__main__ import main
    from gateway.cli.terminal.console import print_error
    from tests.routes import build_in_advance

    sys.excepthook = print_error  # as `main` does; typer keeps the one it finds when it is imported
    _read_modules()
    _Births(socket.socket(fileno=int(sys.argv[1]))).go_on()
    main()
