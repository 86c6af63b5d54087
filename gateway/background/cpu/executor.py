"""Runs CPU-heavy work and reads hostile files in a separate niced process, which ends when it is idle."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway.background.cpu.child import LENGTH, Request, encode_message
from gateway.beside import afterwards
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.domain.json import Json, JsonObject
from gateway.sandbox.child import describe_exit

MAX_REPLY_BYTES = 64 * 1024**2
"""Longer replies are refused."""

_ALLOWED = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH"})
_ROOT = Path(__file__).parents[3]


class ChildEnded(Exception):
    """The process died during a job, or its reply was too long; the text says which."""


@dataclass(frozen=True, slots=True)
class Child:
    """A running child process."""

    process: asyncio.subprocess.Process

    @property
    def ended(self) -> bool:
        """Whether the process died while idle; the event loop may not know that yet."""
        to = self.process.stdin
        if self.process.returncode is not None or to is None or to.transport.is_closing():
            return True
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return False
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    async def ask(self, request: bytes) -> JsonObject:
        """The reply to a request; raises `ChildEnded`."""
        to, back = self.process.stdin, self.process.stdout
        if to is None or back is None:
            raise ChildEnded("it has no pipes")
        try:
            to.write(request)
            await to.drain()
            (length,) = LENGTH.unpack(await back.readexactly(LENGTH.size))
            if length > MAX_REPLY_BYTES:
                raise ChildEnded(f"answered with {length:,} bytes, more than is taken")
            reply: JsonObject = json.loads(await back.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ChildEnded(describe_exit(await self.process.wait())) from None
        return reply

    async def end(self) -> None:
        """Kill the process, and wait until it is gone."""
        self.kill()
        await asyncio.shield(self.process.wait())

    def kill(self) -> None:
        """Kill the process without waiting; the event loop reaps it."""
        with suppress(ProcessLookupError):
            self.process.kill()


async def start_child() -> Child:
    """Start a process that inherits only its pipes and standard error."""
    command = (sys.executable, "-P", "-m", "gateway.background.cpu.child")
    pipe = asyncio.subprocess.PIPE
    environ = child_environment(os.environ)
    return Child(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd="/", env=environ))


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the child: paths and the locale, no credentials; onnxruntime reports nothing and keeps no id."""
    allowed = {name: value for name, value in environ.items() if name in _ALLOWED or name.startswith("LC_")}
    path = os.pathsep.join(filter(None, (str(_ROOT), allowed.get("PYTHONPATH"))))
    return allowed | {"PYTHONPATH": path, "ORT_DISABLE_TELEMETRY": "1"}


IDLE_SECONDS = 60.0
MAX_QUEUED = 32
"""Jobs that may wait; further ones are refused."""
MAX_MEMORY_BYTES = 2 * 1024**3


class CpuJobFailed(SupaclawError):
    """A job in the CPU process failed; trying it again will most likely fail again."""


@dataclass(slots=True)
class Cpu:
    """Runs jobs one after another. The first job starts the process; a job that times out or is cancelled ends it."""

    idle_seconds: float = IDLE_SECONDS
    waiting: int = MAX_QUEUED
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _jobs: int = 0
    _child: Child | None = None
    _timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process is there, and the next job doesn't start it."""
        return self._child is not None and not self._child.ended

    async def run(
        self, function: Callable[..., Json], *arguments: Json, seconds: float, memory: int = MAX_MEMORY_BYTES
    ) -> Json:
        """The result of `function`, which must be at the top of a module, in the CPU process.

        Raises `CpuJobFailed`, also after `seconds`; the job's `OwnerMustAct` and `TryAgainLater`; and `TryAgainLater`
        while too many jobs wait. Cancelling a running job kills the process.
        """
        job = function.__name__
        if function.__qualname__ != job or not job.isidentifier():
            raise TypeError(f"{function.__qualname__} is not at the top of a module, so another process cannot find it")
        request = encode_message(Request(function.__module__, job, arguments, memory))
        if self._jobs > self.waiting:
            raise TryAgainLater("too many jobs are queued; try again in a minute")
        self._jobs += 1
        try:
            async with self._lock:
                reply = await self._ask(job, request, seconds)
        finally:
            self._jobs -= 1
        return _value(job, reply)

    async def close(self) -> None:
        """End the process at once; a running job fails."""
        self._cancel_timer()
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def _ask(self, job: str, request: bytes, seconds: float) -> JsonObject:
        self._cancel_timer()
        if self._child is None or self._child.ended:
            self._child = await start_child()
        child = self._child
        try:
            async with asyncio.timeout(seconds):
                reply = await child.ask(request)
        except BaseException as exc:
            closed = self._child is not child
            self._child = None
            await child.end()
            match exc:
                case TimeoutError():
                    raise CpuJobFailed(f"{job} took longer than {seconds:g} seconds and was stopped") from None
                case ChildEnded() if closed:
                    raise TryAgainLater(f"{job} was stopped because the gateway is stopping") from None
                case ChildEnded():
                    raise CpuJobFailed(f"{job} failed: {exc}") from None
            raise
        self._timer = asyncio.get_running_loop().call_later(self.idle_seconds, self._end_idle)
        return reply

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_idle(self) -> None:
        """End the idle process; the next job starts another."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()


async def run_alone(function: Callable[..., Json], *arguments: Json, seconds: float) -> Json:
    """`Cpu.run` in a new process that runs only this job, without a queue."""
    cpu = Cpu()
    async with afterwards(cpu.close):
        return await cpu.run(function, *arguments, seconds=seconds)


def _value(job: str, reply: JsonObject) -> Json:
    match reply:
        case {"value": value}:
            return value
        case {"failed": "owner", "text": str(text)}:
            raise OwnerMustAct(text)
        case {"failed": "later", "text": str(text)}:
            raise TryAgainLater(text)
        case _:
            raise CpuJobFailed(f"{job} failed: {reply.get('text')}")


@dataclass(slots=True)
class ScratchFolder:
    """A folder at `path` for one user in one process; the first use deletes the remains of a killed process."""

    path: Path
    _sweeping: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _swept: bool = field(default=False, init=False)

    @asynccontextmanager
    async def new(self) -> AsyncIterator[Path]:
        """Create an empty folder in it, which is deleted at the end."""
        async with self._sweeping:
            if not self._swept:
                await asyncio.to_thread(shutil.rmtree, self.path, ignore_errors=True)
                self._swept = True
        folder = await asyncio.to_thread(self._make)
        try:
            yield folder
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _make(self) -> Path:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self.path))
