"""The CPU process as its parent sees it: started, spoken to, ended."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.background.cpu_process import LENGTH
from gateway.domain.json import JsonObject
from gateway.sandbox.child import describe_exit

REPLY = 64 * 1024**2
"""The longest reply that is read."""

_ALLOWED = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH"})
_ROOT = Path(__file__).parents[2]


class Ended(Exception):
    """The process died over a job, or said what is not read; the text is how."""


@dataclass(frozen=True, slots=True)
class Child:
    """One process."""

    process: asyncio.subprocess.Process

    @property
    def ended(self) -> bool:
        """Whether it has died while nobody asked it anything; the event loop may not have been told yet."""
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
        """Its reply; raises `Ended`."""
        to, back = self.process.stdin, self.process.stdout
        if to is None or back is None:
            raise Ended("it has no pipes")
        try:
            to.write(request)
            await to.drain()
            (length,) = LENGTH.unpack(await back.readexactly(LENGTH.size))
            if length > REPLY:
                raise Ended(f"answered with {length:,} bytes, more than is taken")
            reply: JsonObject = json.loads(await back.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Ended(describe_exit(await self.process.wait())) from None
        return reply

    async def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self.kill()
        await asyncio.shield(self.process.wait())

    def kill(self) -> None:
        """The event loop reaps it."""
        with suppress(ProcessLookupError):
            self.process.kill()


async def start() -> Child:
    """A new one, with nothing of ours but its pipes and the standard error."""
    command = (sys.executable, "-P", "-m", "gateway.background.cpu_process")
    pipe = asyncio.subprocess.PIPE
    environ = environment(os.environ)
    return Child(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd="/", env=environ))


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What of ours the child may know: where things are and how to write, nothing that opens a door."""
    allowed = {name: value for name, value in environ.items() if name in _ALLOWED or name.startswith("LC_")}
    return allowed | {"PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), allowed.get("PYTHONPATH"))))}
