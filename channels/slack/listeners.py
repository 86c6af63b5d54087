"""slack-bolt sorts what arrives; its listeners return once that is accepted, and only then is it acknowledged."""

import re
from collections.abc import Awaitable, Callable, Set
from typing import TYPE_CHECKING, Any

from channels.slack import events
from channels.slack.client import Client
from channels.slack.intake import Intake
from channels.slack.payloads import Envelope
from channels.slack.replies import Replies
from gateway.domain.channels.platform import Logger, Recovery
from gateway.domain.errors import SupaclawError

if TYPE_CHECKING:
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
            except events.Unreadable as error:
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


def listening(client: Client, intake: Intake, replies: Replies, commands: Set[str]) -> "AsyncApp":
    """An app whose listeners hand over what they hear; Bolt must be imported."""
    from slack_bolt.async_app import AsyncAssistant

    async def said(event: dict[str, Any]) -> None:
        await intake.take(events.said(event, await client.us()))

    async def edited(
        event: dict[str, Any] | None, ack: "AsyncAck", next_: Callable[[], Awaitable[None]]
    ) -> "BoltResponse | None":
        if event is None or event.get("subtype") != events.EDIT:
            await next_()
            return None
        await said(event)
        return await ack()

    async def acted(body: dict[str, Any], ack: "AsyncAck") -> None:
        inbound = events.acted(body, await client.us(), commands)
        await replies.expect(inbound.address, body.get("response_url"))
        await intake.accept_once(inbound)
        await ack()

    async def opened(set_suggested_prompts: "AsyncSetSuggestedPrompts") -> None:
        await client.attempt(set_suggested_prompts(PROMPTS))

    async def looked_elsewhere() -> None:
        """Without this, Bolt asks Slack where, and fails when that fails."""

    app = _deaf(client)
    app.middleware(edited)  # before the assistant, which acknowledges edits in its threads and tells nobody
    assistant = AsyncAssistant(app_name=app.name, logger=app.logger)
    app.use(assistant)
    assistant.thread_started(opened)
    assistant.thread_context_changed(looked_elsewhere)
    assistant.user_message(said)
    # not by `message`, which overlooks what has no text, such as a file
    app.event({"type": "message", "subtype": events.SAID})(said)
    app.event("app_mention")(said)
    app.command(re.compile(""))(acted)
    app.block_action(re.compile("^supaclaw-"))(acted)
    return app


def _deaf(client: Client) -> "AsyncApp":
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
