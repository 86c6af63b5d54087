"""Retries the steps of a start during a database outage, and answers requests meanwhile."""

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

from gateway.beside import cancel
from gateway.config.data.files import disk_full
from gateway.domain.errors import TryAgainLater, leaves
from gateway.domain.time import Clock

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 5.0
LOG_SECONDS = 60.0
ANSWER_AFTER_SECONDS = 2.0
"""Seconds until a start answers requests; most starts are faster."""
REQUEST_SECONDS = 5.0
_BEARER = re.compile(r"^authorization: *bearer +(\S+)", re.IGNORECASE | re.MULTILINE)
_BROWSER = re.compile(r"^accept: *text/html", re.IGNORECASE | re.MULTILINE)

Result = TypeVar("Result")

log = structlog.get_logger("gateway")


@dataclass(slots=True)
class StartRetry:
    """Retries until a step works; `reason` says in one line why the start waits."""

    listening: socket.socket | None
    data: Path
    local_token: str = field(repr=False)
    clock: Clock
    reason: str = field(default="it starts", init=False)
    _log_at: float = field(default=0.0, init=False)

    async def retry(self, stack: AsyncExitStack, attempt: Callable[[AsyncExitStack], Awaitable[Result]]) -> Result:
        """The result of the first attempt that meets no outage.

        `stack` closes what the successful attempt opened; what a failed attempt opened is closed before the next one.
        """
        pause = MIN_PAUSE_SECONDS
        while True:
            async with AsyncExitStack() as opened:
                try:
                    made = await attempt(opened)
                except* (TryAgainLater, OSError) as outage:
                    if not all(isinstance(each, TryAgainLater) or disk_full(each) for each in leaves(outage)):
                        raise
                    self._report(outage)
                else:
                    stack.push_async_exit(opened.pop_all())
                    return made
            await self.clock.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def run_until(self, stop: asyncio.Event, work: Awaitable[Result]) -> Result | None:
        """The result of `work`, or None if `stop` is set first; requests are answered meanwhile."""
        tasks = [asyncio.ensure_future(work), asyncio.create_task(stop.wait()), asyncio.create_task(self._answer_all())]
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
            return await tasks[0] if tasks[0].done() else None
        finally:
            await cancel(*tasks)

    def _report(self, outage: BaseExceptionGroup) -> None:
        first = next(leaves(outage))
        self.reason = str(first)
        if disk_full(first):
            self.reason = f"the disk is full: {self.reason}; make room in {self.data} (64 MB, unless it says more)"
        if self.clock.monotonic() >= self._log_at:
            self._log_at = self.clock.monotonic() + LOG_SECONDS
            log.warning("start.waits", error=self.reason)

    async def _answer_all(self) -> None:
        """Answer requests until cancelled, after `ANSWER_AFTER_SECONDS`."""
        if self.listening is None:
            return
        await asyncio.sleep(ANSWER_AFTER_SECONDS)
        server = await asyncio.start_server(self._answer, sock=self.listening.dup(), backlog=512)
        await server.serve_forever()  # cancelling closes it

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._reply(request.decode("latin-1")))
                await writer.drain()
        writer.close()

    def _reply(self, request: str) -> bytes:
        """The 503 reply; only programs on this machine get the reason."""
        bearer = _BEARER.search(request)
        trusted = bearer is not None and hmac.compare_digest(bearer[1].encode(), self.local_token.encode())
        message = f"The gateway waits for its database{f': {self.reason}' if trusted else ''}"
        error = {"message": message, "type": "server_error", "param": None, "code": "waiting"}
        body, kind = json.dumps({"error": error}), "application/json"
        if request.startswith("GET /health "):
            body, kind = "waiting\n", "text/plain"
        elif _BROWSER.search(request):
            body, kind = Path(__file__).with_suffix(".html").read_text("utf-8"), "text/html; charset=utf-8"
        head = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close"
        return f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\n\r\n{body}".encode()
