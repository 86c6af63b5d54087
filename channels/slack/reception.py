"""Receiving: one websocket after another (Socket Mode), each envelope acknowledged once it is accepted."""

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
from channels.slack.payloads import Envelope
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
"""What Slack's assistant offers in a new conversation."""


class Dispatch:
    """Hands one envelope after another to the app, and raises nothing."""

    def __init__(self, app: "AsyncApp", recovery: Recovery, log: Logger) -> None:
        self._app = app
        self._recovery = recovery
        self._logger = log

    async def take(self, envelope: Envelope) -> bool:
        """Whether it may be acknowledged: it was committed, or there is nothing in it for us, and nobody listens (404).

        What cannot be accepted now holds up what follows, so that the order is kept; what makes us stumble does not,
        and Slack delivers it again.
        """
        from slack_bolt.async_app import AsyncBoltRequest

        while True:
            try:
                request = AsyncBoltRequest(mode="socket_mode", body=envelope.payload)
                done = (await self._app.async_dispatch(request)).status in {200, 404}
            except events.UnreadableEvent as error:
                self._logger.warning("slack.event_skipped", envelope=envelope.envelope_id, why=str(error))
                done = True
            except SupaclawError as error:
                await self._recovery.after(error)
                continue
            except Exception:
                self._logger.exception("slack.event_failed", envelope=envelope.envelope_id)
                return False
            self._recovery.over()
            return done


def listening_app(client: Client, intake: Intake, replies: Replies, commands: Set[str]) -> "AsyncApp":
    """An app whose listeners hand over what they hear; Bolt must be imported."""
    from slack_bolt.async_app import AsyncAssistant

    async def said(event: dict[str, Any]) -> None:
        await intake.take(events.read_message(event, await client.us()))

    async def edited(
        event: dict[str, Any] | None, ack: "AsyncAck", next_: Callable[[], Awaitable[None]]
    ) -> "BoltResponse | None":
        if event is None or event.get("subtype") != events.EDIT_SUBTYPE:
            await next_()
            return None
        await said(event)
        return await ack()

    async def acted(body: dict[str, Any], ack: "AsyncAck") -> None:
        inbound = events.read_action(body, await client.us(), commands)
        await replies.expect(inbound.address, body.get("response_url"))
        await intake.accept_once(inbound)
        await ack()

    async def opened(set_suggested_prompts: "AsyncSetSuggestedPrompts") -> None:
        await client.attempt(set_suggested_prompts(PROMPTS))

    async def looked_elsewhere() -> None:
        """Without this, Bolt asks Slack where, and fails when that fails."""

    app = _bare_app(client)
    app.middleware(edited)  # before the assistant, which acknowledges edits in its threads and tells nobody
    assistant = AsyncAssistant(app_name=app.name, logger=app.logger)
    app.use(assistant)
    assistant.thread_started(opened)
    assistant.thread_context_changed(looked_elsewhere)
    assistant.user_message(said)
    # not by `message`, which overlooks what has no text, such as a file
    app.event({"type": "message", "subtype": events.MESSAGE_SUBTYPES})(said)
    app.event("app_mention")(said)
    app.command(re.compile(""))(acted)
    app.block_action(re.compile("^supaclaw-"))(acted)
    return app


def _bare_app(client: Client) -> "AsyncApp":
    """Without listeners. It asks Slack nothing by itself, is silent, and raises what listeners raise."""
    from slack_bolt.async_app import AsyncApp
    from slack_bolt.authorization import AuthorizeResult

    async def known(context: "AsyncBoltContext") -> AuthorizeResult:
        context["client"] = client.web  # Bolt's own copy would take the environment's proxy to an API of your own
        us, token = await client.us(), client.bot_token
        return AuthorizeResult(
            enterprise_id=None, team_id=us.team_id, bot_user_id=us.user_id, bot_id=us.bot_id, bot_token=token
        )

    async def fail(error: Exception) -> None:
        raise error

    web, name = client.web, "slack_bolt"  # it names a logger, too, which falls silent
    app = AsyncApp(name=name, logger=web.logger, client=web, authorize=known, process_before_response=True)
    app.error(fail)
    return app


MAX_WAITING = 1000
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
        self._waiting: asyncio.Queue[Envelope] = asyncio.Queue(MAX_WAITING)
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
