"""CPU-heavy work, and the reading of hostile files, in one niced process of its own; it ends when it is not used."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.background.cpu_child import Child, Ended, start
from gateway.background.cpu_process import Request, packed
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.domain.json import Json, JsonObject

IDLE_SECONDS = 60.0
WAITING = 32
"""Jobs that may wait; more are refused."""
MEMORY = 2 * 1024**3


class CpuJobFailed(SupaclawError):
    """A job in the CPU process did not come to its end; trying it again will most likely fail again."""


@dataclass(slots=True)
class Cpu:
    """Runs jobs one after another; the process is started by the first one and killed by one that misbehaves."""

    idle_seconds: float = IDLE_SECONDS
    waiting: int = WAITING
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _jobs: int = 0
    _child: Child | None = None
    _timer: asyncio.TimerHandle | None = None

    async def run(self, function: Callable[..., Json], *arguments: Json, seconds: float, memory: int = MEMORY) -> Json:
        """What `function`, a function at the top of a module, makes of the arguments over there.

        Raises `CpuJobFailed`, also after `seconds`, what the job raises of `OwnerMustAct` and `TryAgainLater`, and
        `TryAgainLater` while too many jobs wait. Who is cancelled while the job runs takes the process down with it.
        """
        job = function.__name__
        if function.__qualname__ != job or not job.isidentifier():
            raise TypeError(f"{function.__qualname__} is not at the top of a module, so another process cannot find it")
        request = packed(Request(function.__module__, job, arguments, memory))
        if self._jobs > self.waiting:
            raise TryAgainLater("too many jobs are queued; try again in a minute")
        self._jobs += 1
        try:
            async with self._turn:
                reply = await self._ask(job, request, seconds)
        finally:
            self._jobs -= 1
        return _value(job, reply)

    async def close(self) -> None:
        """End the process, whatever it is doing; a job under way fails."""
        self._rest()
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def _ask(self, job: str, request: bytes, seconds: float) -> JsonObject:
        self._rest()
        if self._child is None or self._child.ended:
            self._child = await start()
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
                case Ended() if closed:
                    raise TryAgainLater(f"{job} was stopped because the gateway is stopping") from None
                case Ended():
                    raise CpuJobFailed(f"{job} failed: {exc}") from None
            raise
        self._timer = asyncio.get_running_loop().call_later(self.idle_seconds, self._retire)
        return reply

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _retire(self) -> None:
        """Nobody has used it for a while; the next job starts another."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()


async def run_alone(function: Callable[..., Json], *arguments: Json, seconds: float) -> Json:
    """The same in a process of its own, which waits for no other job and ends with this one."""
    cpu = Cpu()
    try:
        return await cpu.run(function, *arguments, seconds=seconds)
    finally:
        await cpu.close()


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
