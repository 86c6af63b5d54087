"""Waiting: while the database is away or refuses us, a start goes on trying, says so, and answers who asks."""

import asyncio
import hmac
import json
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import structlog

from gateway.config.data.files import disk_full
from gateway.domain.errors import TryAgainLater, leaves
from gateway.domain.time import Clock

AGAIN_AFTER, LONGEST_PAUSE = 0.5, 5.0
TELL_EVERY = 60.0
OPEN_AFTER = 2.0
"""Seconds that whoever asks a start how it is has to wait for an answer; most starts are over by then."""
ASK_WITHIN = 5.0
_BEARER = re.compile(r"^authorization: *bearer +(\S+)", re.IGNORECASE | re.MULTILINE)

Made = TypeVar("Made")

log = structlog.get_logger("gateway")


@dataclass(slots=True)
class Waiting:
    """What a start does until it works: `why` is what it waits for, in one line."""

    listening: socket.socket | None
    data: Path
    local_token: str = field(repr=False)
    clock: Clock
    why: str = field(default="it starts", init=False)
    _tell_at: float = field(default=0.0, init=False)

    async def retry(self, stack: AsyncExitStack, attempt: Callable[[AsyncExitStack], Awaitable[Made]]) -> Made:
        """What an attempt makes that meets no outage; what it opened is closed with `stack`, or before the next one."""
        pause = AGAIN_AFTER
        while True:
            async with AsyncExitStack() as opened:
                try:
                    made = await attempt(opened)
                except* (TryAgainLater, OSError) as outage:
                    if not all(isinstance(each, TryAgainLater) or disk_full(each) for each in leaves(outage)):
                        raise
                    self._tell(outage)
                else:
                    stack.push_async_exit(opened.pop_all())
                    return made
            await self.clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def run_until(self, stop: asyncio.Event, work: Awaitable[Made]) -> Made | None:
        """What comes of the work, or None when it is to stop before that; meanwhile, who asks is answered."""
        tasks = [asyncio.ensure_future(work), asyncio.create_task(stop.wait()), asyncio.create_task(self._answer_all())]
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            return await tasks[0] if tasks[0].done() else None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _tell(self, outage: BaseExceptionGroup) -> None:
        first = next(leaves(outage))
        self.why = str(first)
        if disk_full(first):
            self.why = f"the disk is full: {self.why}; make room in {self.data} (64 MB, unless it says more)"
        if self.clock.monotonic() >= self._tell_at:
            self._tell_at = self.clock.monotonic() + TELL_EVERY
            log.warning("start.waits", error=self.why)

    async def _answer_all(self) -> None:
        """Until cancelled: take over the socket, if the start takes longer than a moment."""
        if self.listening is None:
            return
        await asyncio.sleep(OPEN_AFTER)
        server = await asyncio.start_server(self._answer, sock=self.listening.dup(), backlog=512)
        await server.serve_forever()  # closes it when cancelled

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(ASK_WITHIN):
                asked = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._reply(asked.decode("latin-1")))
                await writer.drain()
        writer.close()

    def _reply(self, asked: str) -> bytes:
        """Why it waits is for programs on this machine only."""
        shown = _BEARER.search(asked)
        known = shown is not None and hmac.compare_digest(shown[1].encode(), self.local_token.encode())
        message = f"The gateway waits for its database{f': {self.why}' if known else ''}"
        error = {"message": message, "type": "server_error", "param": None, "code": "waiting"}
        body, kind = json.dumps({"error": error}), "application/json"
        if asked.startswith("GET /health "):
            body, kind = "waiting\n", "text/plain"
        head = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close"
        return f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\n\r\n{body}".encode()
