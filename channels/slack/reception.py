"""Receiving over one websocket after another (Socket Mode); an envelope is acknowledged once it is accepted."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from channels.slack import events
from channels.slack.client import CONNECT_SECONDS, Client, translated
from channels.slack.events import Intake
from channels.slack.payloads import MESSAGE_SUBTYPES, Envelope
from channels.slack.sending import Replies
from gateway.domain.channels.platform import Logger, PlatformError, Recovery, TooFast, Unanswered, Unreachable
from gateway.domain.errors import SupaclawError

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse
    from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncBoltContext, AsyncSetSuggestedPrompts
    from slack_bolt.response import BoltResponse


PROMPTS = [
    {"title": "What can you do?", "message": "What can you do for me?"},
    {"title": "Sum up a file", "message": "Sum up the file that I am going to send."},
    {"title": "Where were we?", "message": "Where did we leave off, and what is still open?"},
]
"""The suggestions of Slack's assistant in a new conversation."""


async def dispatch(app: "AsyncApp", recovery: Recovery, log: Logger, envelope: Envelope) -> bool:
    """Hand an envelope to the app; returns whether to acknowledge it: it was committed, or no listener wants it (404).

    Never raises. An envelope that can't be accepted now is retried before any other, to keep the order. One that raises
    an unexpected error is not acknowledged, so Slack delivers it again later.
    """
    from slack_bolt.async_app import AsyncBoltRequest

    while True:
        try:
            request = AsyncBoltRequest(mode="socket_mode", body=envelope.payload)
            done = (await app.async_dispatch(request)).status in {200, 404}
        except events.UnreadableEvent as error:
            log.warning("slack.event_skipped", envelope=envelope.envelope_id, why=str(error))
            done = True
        except SupaclawError as error:
            await recovery.after(error)
            continue
        except Exception:
            log.exception("slack.event_failed", envelope=envelope.envelope_id)
            return False
        recovery.over()
        return done


def listening_app(client: Client, intake: Intake, replies: Replies, commands: Set[str]) -> "AsyncApp":
    """An app whose listeners pass on messages, edits, commands and button presses; import Bolt first."""
    from slack_bolt.async_app import AsyncAssistant

    async def on_message(event: dict[str, Any]) -> None:
        await intake.take(events.read_message(event, await client.account()))

    async def on_edit(
        event: dict[str, Any] | None, ack: "AsyncAck", next_: Callable[[], Awaitable[None]]
    ) -> "BoltResponse | None":
        if event is None or event.get("subtype") not in events.CHANGES:
            await next_()
            return None
        await on_message(event)
        return await ack()

    async def on_action(body: dict[str, Any], ack: "AsyncAck") -> None:
        inbound = events.read_action(body, await client.account(), commands)
        await replies.remember_url(inbound.address, body.get("response_url"))
        await intake.accept_once(inbound)
        await ack()

    async def on_thread_opened(set_suggested_prompts: "AsyncSetSuggestedPrompts") -> None:
        await client.attempt(set_suggested_prompts(PROMPTS))

    async def on_context_changed() -> None:
        """Do nothing; without a listener Bolt makes a request, and fails if that fails."""

    app = _bare_app(client)
    app.middleware(on_edit)  # before the assistant, which acknowledges edits in its threads and drops them
    assistant = AsyncAssistant(app_name=app.name, logger=app.logger)
    app.use(assistant)
    assistant.thread_started(on_thread_opened)
    assistant.thread_context_changed(on_context_changed)
    assistant.user_message(on_message)
    # not `app.message`, which skips messages without a text, such as a file
    app.event({"type": "message", "subtype": MESSAGE_SUBTYPES})(on_message)
    app.event("app_mention")(on_message)
    app.command(re.compile(""))(on_action)
    app.block_action(re.compile("^supaclaw-"))(on_action)
    return app


def _bare_app(client: Client) -> "AsyncApp":
    """An app without listeners that makes no requests, logs nothing and raises the errors of its listeners."""
    from slack_bolt.async_app import AsyncApp
    from slack_bolt.authorization import AuthorizeResult

    async def authorize(context: "AsyncBoltContext") -> AuthorizeResult:
        context["client"] = client.web  # Bolt's own copy would use the environment's proxy for an API of your own
        account, token = await client.account(), client.bot_token
        return AuthorizeResult(
            enterprise_id=None,
            team_id=account.team_id,
            bot_user_id=account.user_id,
            bot_id=account.bot_id,
            bot_token=token,
        )

    async def fail(error: Exception) -> None:
        raise error

    web, name = client.web, "slack_bolt"  # also the name of a logger, which is silenced
    app = AsyncApp(name=name, logger=web.logger, client=web, authorize=authorize, process_before_response=True)
    app.error(fail)
    return app


MAX_WAITING = 1000
STEADY_SECONDS = 5.0
"""A connection that ends sooner counts as a failure; one that lasted longer is replaced at once."""


class Reception:
    """Queues the envelopes of all sockets and acknowledges each over the socket that is open then.

    `heard_at` is the monotonic time at which Slack last sent anything. A silent socket is pinged after
    `ping_interval` seconds and replaced after as many more.
    """

    def __init__(self, client: Client, recovery: Recovery, log: Logger, ping_interval: float) -> None:
        self.heard_at: float | None = None
        self._client = client
        self._recovery = recovery
        self._logger = log
        self._ping_interval = ping_interval
        self._waiting: asyncio.Queue[Envelope] = asyncio.Queue(MAX_WAITING)
        self._socket: ClientWebSocketResponse | None = None

    async def run(self, take: Callable[[Envelope], Awaitable[bool]]) -> None:
        """Hand every envelope to `take`, in order, until cancelled; `take` returns whether to acknowledge it."""
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
                # best effort: Slack repeats an envelope without an acknowledgement
                with suppress(OSError):
                    await self._socket.send_json({"envelope_id": envelope.envelope_id})

    async def _stay_connected(self) -> None:
        """Listen on one connection until it ends; raises `PlatformError` if it ended too soon."""
        from aiohttp import ClientWSTimeout

        await self._client.account()
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
        """Listen until the socket ends, stays silent, or Slack asks for a new one."""
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
        """Note a sign of life; while Slack asks the client to wait, silence is expected."""
        self.heard_at = time.monotonic() + silent_for

    def _take_frame(self, frame: str, socket: "ClientWebSocketResponse") -> bool:
        """Queue an envelope; returns whether Slack keeps this socket.

        Other frames are skipped. If the queue is full, Slack repeats the envelope, since it is not acknowledged.
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
