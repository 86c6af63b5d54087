"""The CPU process as its parent sees it: started, spoken to, ended."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.background.cpu_process import LENGTH
from gateway.domain.json import JsonObject

REPLY = 64 * 1024**2
"""The longest reply that is read."""

_ALLOWED = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH"})
_ROOT = Path(__file__).parents[2]
_TAIL = 2000


class TooLong(Exception):
    """A reply that is not read."""


@dataclass(frozen=True, slots=True)
class Child:
    """One process; `errors` is a file without a name that is its standard error."""

    process: asyncio.subprocess.Process
    errors: int

    @property
    def alive(self) -> bool:
        """Whether it has not ended by itself."""
        return self.process.returncode is None

    async def ask(self, request: bytes) -> JsonObject:
        """Its reply; raises `asyncio.IncompleteReadError` or `ConnectionError` when it dies over it, else `TooLong`."""
        pipes = self.process
        if pipes.stdin is None or pipes.stdout is None:
            raise ConnectionError("no pipes")
        pipes.stdin.write(request)
        await pipes.stdin.drain()
        (length,) = LENGTH.unpack(await pipes.stdout.readexactly(LENGTH.size))
        if length > REPLY:
            raise TooLong(f"answered with {length:,} bytes, more than is taken")
        reply: JsonObject = json.loads(await pipes.stdout.readexactly(length))
        return reply

    async def end(self, *, crashed: bool = False) -> str:
        """Reap it, killed unless it has `crashed`; returns its last line on standard error, else how it ended."""
        if crashed:
            # A kill would hide how it ended, but it must not be waited for without end.
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), 1)
        if self.alive:
            self.process.kill()
        code = await asyncio.shield(self.process.wait())
        words = self._last_words() or _ending(code)
        os.close(self.errors)
        return words

    def forget_errors(self) -> None:
        """Before a new job: what earlier ones said does not concern it."""
        os.ftruncate(self.errors, 0)
        os.lseek(self.errors, 0, os.SEEK_SET)

    def _last_words(self) -> str:
        tail = os.pread(self.errors, _TAIL, max(0, os.fstat(self.errors).st_size - _TAIL))
        lines = tail.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


async def start() -> Child:
    """A new one, with nothing of ours but three pipes."""
    errors, path = tempfile.mkstemp(prefix="supaclaw-")
    os.unlink(path)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "gateway.background.cpu_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        cwd="/",
        env=environment(os.environ),
    )
    return Child(process, errors)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What of ours the child may know: where things are and how to write, nothing that opens a door."""
    allowed = {name: value for name, value in environ.items() if name in _ALLOWED or name.startswith("LC_")}
    return allowed | {"PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), allowed.get("PYTHONPATH"))))}


def _ending(code: int) -> str:
    if code >= 0:
        return f"the process ended with code {code}"
    if -code == signal.SIGKILL:
        return "the process was killed (SIGKILL); it may have run out of memory"
    return f"the process was ended by {signal.Signals(-code).name if -code in {*signal.Signals} else f'signal {-code}'}"
