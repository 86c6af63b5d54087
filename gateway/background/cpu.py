"""CPU-heavy work, and the reading of hostile files, in one niced process of its own; it ends when it is not used."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.background.cpu_child import Child, TooLong, start
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
    _retired: bool = False

    async def run(self, function: Callable[..., Json], *arguments: Json, seconds: float, memory: int = MEMORY) -> Json:
        """What `function`, a function at the top of a module, makes of the arguments over there.

        Raises `CpuJobFailed`, also after `seconds`, what the job raises of `OwnerMustAct` and `TryAgainLater`, and
        `TryAgainLater` while too many jobs wait. Who is cancelled while the job runs takes the process down with it.
        """
        request = packed(Request(function.__module__, _name(function), arguments, memory))
        if self._jobs > self.waiting:
            raise TryAgainLater("too many jobs wait for the processor; try again in a minute")
        self._jobs += 1
        try:
            async with self._turn:
                reply = await self._ask(function.__name__, request, seconds)
        finally:
            self._jobs -= 1
        return _value(function.__name__, reply)

    async def close(self) -> None:
        """End the process, whatever it is doing; a job under way fails."""
        self._rest()
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def _ask(self, job: str, request: bytes, seconds: float) -> JsonObject:
        self._rest()
        child = self._child = await self._alive()
        try:
            child.forget_errors()
            async with asyncio.timeout(seconds):
                reply = await child.ask(request)
        except TimeoutError:
            await self._drop(child)
            raise CpuJobFailed(f"{job} took longer than {seconds:g} seconds and was ended") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            if self._child is not child:
                raise TryAgainLater(f"{job} was ended, for the gateway stops") from None
            raise CpuJobFailed(f"{job} failed: {await self._drop(child, crashed=True)}") from None
        except TooLong as exc:
            await self._drop(child)
            raise CpuJobFailed(f"{job} {exc}; this is a defect") from None
        except BaseException:
            await self._drop(child)
            raise
        self._timer = asyncio.get_running_loop().call_later(self.idle_seconds, self._retire)
        return reply

    async def _alive(self) -> Child:
        if self._child is not None:
            if self._child.alive and not self._retired:
                return self._child
            await self._drop(self._child)
        self._retired = False
        return await start()

    async def _drop(self, child: Child, *, crashed: bool = False) -> str:
        """End it, unless `close` is doing that."""
        if self._child is not child:
            return "the gateway stops"
        self._child = None
        return await child.end(crashed=crashed)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _retire(self) -> None:
        """Nobody has used it for a while; the next job starts another."""
        if self._child is not None and self._child.alive:
            self._retired = True
            self._child.process.kill()


def _name(function: Callable[..., Json]) -> str:
    if function.__qualname__ != function.__name__ or not function.__name__.isidentifier():
        raise TypeError(f"{function.__qualname__} is not at the top of a module, so another process cannot find it")
    return function.__name__


def _value(job: str, reply: JsonObject) -> Json:
    if "failed" not in reply:
        return reply["value"]
    text = str(reply["text"])
    match reply["failed"]:
        case "owner":
            raise OwnerMustAct(text)
        case "later":
            raise TryAgainLater(text)
        case _:
            raise CpuJobFailed(f"{job} failed: {text}")
