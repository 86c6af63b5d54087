"""Receiving: one websocket of Slack's after another (Socket Mode), and one envelope after another."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import ValidationError

from channels.slack.client import CONNECT_SECONDS, Client, translated
from channels.slack.payloads import Envelope
from gateway.domain.channels.platform import Logger, PlatformError, Recovery, TooFast, Unanswered, Unreachable

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

MOST_WAITING = 1000
STEADY_SECONDS = 5.0
"""A connection that ends sooner is trouble; one that lasted is replaced at once."""


class Reception:
    """What arrives waits in one queue, whichever socket brought it; it is acknowledged over the one that is open.

    `heard_at` is when Slack last answered, or sent anything. A socket that is silent is pinged after `ping_interval`
    seconds and given up after as many more.
    """

    def __init__(self, client: Client, recovery: Recovery, log: Logger, ping_interval: float) -> None:
        self.heard_at: float | None = None
        self._client = client
        self._recovery = recovery
        self._logger = log
        self._ping_interval = ping_interval
        self._waiting: asyncio.Queue[Envelope] = asyncio.Queue(MOST_WAITING)
        self._socket: ClientWebSocketResponse | None = None

    async def run(self, take: Callable[[Envelope], Awaitable[bool]]) -> None:
        """Hand every envelope to `take`, in order, until cancelled; it says what may be acknowledged."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work(take))
            while True:
                try:
                    await self._stay_connected()
                except PlatformError as error:
                    if not isinstance(error, Unreachable | Unanswered):
                        self._hear((isinstance(error, TooFast) and error.retry_after) or 0.0)
                    await self._recovery.after(error)

    async def _work(self, take: Callable[[Envelope], Awaitable[bool]]) -> None:
        while True:
            envelope = await self._waiting.get()
            if await take(envelope) and self._socket is not None:
                # best effort: what Slack does not hear of, it delivers again
                with suppress(OSError):
                    await self._socket.send_json({"envelope_id": envelope.envelope_id})

    async def _stay_connected(self) -> None:
        """For as long as it lasts; raises `PlatformError` when it did not last."""
        from aiohttp import ClientWSTimeout

        await self._client.us()
        url = await self._client.socket_url()
        self._hear()
        began = time.monotonic()
        with translated():
            async with (
                asyncio.timeout(CONNECT_SECONDS) as limit,
                self._client.http.ws_connect(
                    url, autoping=False, timeout=ClientWSTimeout(ws_close=2.0), proxy=self._client.web.proxy
                ) as socket,
            ):
                limit.reschedule(None)
                try:
                    await self._listen(socket)
                finally:
                    self._socket = None
        if time.monotonic() - began < STEADY_SECONDS:
            raise Unanswered("Slack closed the connection soon after it was made")

    async def _listen(self, socket: "ClientWebSocketResponse") -> None:
        """Until the socket ends, is silent, or Slack asks for a new one; greeted, it can acknowledge."""
        from aiohttp import WSMsgType

        pinged = False
        while True:
            try:
                frame = await socket.receive(self._ping_interval)
            except TimeoutError:
                if pinged:
                    return
                pinged = True
                await socket.ping()
                continue
            pinged = False
            match frame.type:
                case WSMsgType.TEXT if not self._take_frame(frame.data, socket):
                    return
                case WSMsgType.PING:
                    await socket.pong(frame.data)
                case WSMsgType.TEXT | WSMsgType.PONG:
                    pass
                case _:
                    return
            self._hear()

    def _hear(self, silent_for: float = 0.0) -> None:
        """Slack answered; while it asks us to wait, silence says nothing."""
        self.heard_at = time.monotonic() + silent_for

    def _take_frame(self, frame: str, socket: "ClientWebSocketResponse") -> bool:
        """Whether Slack goes on with this socket.

        What is no envelope is skipped; what does not fit in the queue comes again, for nobody acknowledges it.
        """
        with suppress(asyncio.QueueFull):
            try:
                match json.loads(frame):
                    case {"type": "hello"}:
                        self._socket = socket
                        self._recovery.over()
                    case {"type": "disconnect"}:
                        return False
                    case {"envelope_id": str()} as told:
                        self._waiting.put_nowait(Envelope.model_validate(told))
            except (ValidationError, ValueError, RecursionError) as error:
                self._logger.warning("slack.frame_skipped", why=type(error).__name__)
        return True
