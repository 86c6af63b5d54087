"""Slack's Web API: the SDK's client, and the error for each answer that is not "ok".

| answer | the request was | error |
| --- | --- | --- |
| 429, a code of `_TOO_FAST` | not carried out | `TooFast` |
| 5xx, a code of `_TROUBLE`, no code at all | perhaps carried out; the channel looks for it | `Unanswered` |
| a code of `_TOKEN` | not carried out; Slack rejects the app's token | `TokenRefused` |
| a code of `_CLOSED`, 4xx without a code | not carried out; the workspace or a proxy refuses requests | `TurnedAway` |
| any other code | refused | `SlackRefused`, final for a text if in `_FINAL` |
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from logging import Logger
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from channels.slack.payloads import EVENT_TYPE, AppAccount, Message, Page, Payload, Posted, Socket
from gateway.domain.channels import platform
from gateway.domain.channels.platform import (
    PlatformError,
    TokenRefused,
    TooFast,
    TurnedAway,
    Unanswered,
    Undecidable,
    Unreachable,
    seconds_to_wait,
)
from gateway.domain.conversation.inbound import Address

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from slack_sdk.web.async_client import AsyncWebClient
    from slack_sdk.web.async_slack_response import AsyncSlackResponse


_TOO_FAST = re.compile(r"rate_?limited|message_limit_exceeded")
_TROUBLE = re.compile(r"fatal_error|internal_error|request_timeout|service_unavailable")
_TOKEN = re.compile(r"account_inactive|invalid_auth|no_permission|not_allowed_token_type|not_authed|token_")
_CLOSED = re.compile(
    r"access_denied|accesslimited|ekm_access|enterprise_is|org_login|team_access|team_added|two_factor"
)
_FINAL = re.compile(
    r"channel_|.*_not_found|is_|not_in_channel|restricted_action|msg_|no_text|invalid_|metadata_|markdown_|too_many_|as_user_"
    r"|cannot_|cant_|messages_tab_disabled|user_|slack_connect_|attachment_|http_[34]|foreign_host|method_|unknown_method"
)
"""Codes with which a text can never be sent there. A refused file is never retried: its text is sent instead."""

_MEANINGS = {
    "account_inactive": "the app was removed from the workspace; install it again at api.slack.com/apps",
    "channel_not_found": "Slack does not know the chat, or the app is not in it; invite it there",
    "is_archived": "the channel is archived",
    "missing_scope": "the app lacks a permission; add it at api.slack.com/apps and install the app again",
    "not_in_channel": "the app is not in the channel; invite it there",
    "restricted_action": "the workspace does not let the app write there",
}


class SlackRefused(platform.Refused):
    """Slack refused the request for the reason `code`, such as "channel_not_found"."""

    retry_after = 30.0
    code: str

    def __init__(self, code: str, needed: str = "") -> None:
        super().__init__(f"{_MEANINGS.get(code, 'Slack refuses it')} ({code})" + (f": {needed}" if needed else ""))
        self.code = code

    @property
    def final(self) -> bool:
        """Whether the same text can never be shown there."""
        return _FINAL.match(self.code) is not None


def refusal(status: int, code: str, needed: str, wait: float | None) -> PlatformError:
    """The error for an answer with this status, error code and `Retry-After` header."""
    if status == 429 or _TOO_FAST.match(code):
        return TooFast("Slack", wait)
    if not code and 400 <= status < 500:
        return TurnedAway(f"Slack answered {status}")
    if not code or status >= 500 or _TROUBLE.match(code):
        return Unanswered(f"Slack answered {code or status or 'something unreadable'}")
    if _TOKEN.match(code):
        why = _MEANINGS.get(code, "a token is wrong or was revoked; api.slack.com/apps shows both")
        return TokenRefused(f"{why} ({code})")
    if _CLOSED.match(code):
        return TurnedAway(f"Slack accepts no logins at the moment ({code})")
    return SlackRefused(code, needed)


CONNECT_SECONDS = 10
ANSWER_SECONDS = 30.0
BRIEF_SECONDS = 5.0
WEEK_SECONDS = 7 * 86400

Answer = TypeVar("Answer", bound=BaseModel)
Block = dict[str, Any]


class Client:
    """Calls over one HTTP session, without the SDK's own retries; raises `PlatformError`."""

    def __init__(self, bot_token: str, app_token: str, base_url: str | None) -> None:
        self._app_token = app_token
        self.bot_token = bot_token
        self.base_url = base_url
        self._us: AppAccount | None = None

    @cached_property
    def http(self) -> "ClientSession":
        """The HTTP session; it limits only the time to connect."""
        from aiohttp import ClientSession, ClientTimeout

        return ClientSession(timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS))

    @cached_property
    def web(self) -> "AsyncWebClient":
        """The SDK's client, without its log, which has addresses. An API of your own is reached without a proxy."""
        from slack_sdk.web.async_client import AsyncWebClient

        base, quiet = self.base_url or AsyncWebClient.BASE_URL, Logger("slack_sdk", level=100)
        web = AsyncWebClient(self.bot_token, base_url=base, session=self.http, retry_handlers=[], logger=quiet)
        if self.base_url:
            web.proxy = None
        return web

    async def call(
        self, request: Awaitable["AsyncSlackResponse"], answer: type[Answer], seconds: float = ANSWER_SECONDS
    ) -> Answer:
        """The answer to a request of `web`; raises `PlatformError`."""
        try:
            with translated():
                async with asyncio.timeout(seconds):
                    return answer.model_validate((await request).data)
        except (AttributeError, TypeError, ValueError):  # the SDK fails so on a body that it doesn't expect
            raise Unanswered("unreadable answer from Slack") from None

    async def attempt(self, request: Awaitable["AsyncSlackResponse"]) -> None:
        """Make an optional request: a refusal is ignored."""
        with suppress(PlatformError):
            await self.call(request, Payload, BRIEF_SECONDS)

    async def account(self) -> AppAccount:
        """The account of the bot token, requested once."""
        if self._us is None:
            self._us = await self.call(self.web.auth_test(), AppAccount, BRIEF_SECONDS)
        return self._us

    async def socket_url(self) -> str:
        """A fresh address for one websocket."""
        return (await self.call(self.web.apps_connections_open(app_token=self._app_token), Socket, CONNECT_SECONDS)).url

    async def post(self, to: Address, text: str, key: str, blocks: Sequence[Block] = ()) -> str:
        """Post a message and return its id. Without link previews: Slack would fetch any address that a model wrote."""
        request = self.web.chat_postMessage(
            channel=to.chat,
            thread_ts=to.thread or None,
            text=text,
            blocks=blocks or None,
            metadata=metadata(key),
            unfurl_links=False,
            unfurl_media=False,
        )
        return (await self.call(request, Posted)).ts

    async def delete(self, at: Address, ts: str) -> None:
        """Delete a message of the app."""
        await self.call(self.web.chat_delete(channel=at.chat, ts=ts), Payload)

    async def find(self, at: Address, key: str) -> str | None:
        """The id of the message sent with this key, or None; raises `Undecidable` if Slack doesn't say."""
        try:
            async for message in self._messages(at, f"{time.time() - WEEK_SECONDS:.6f}"):
                if message.key == key:
                    return message.ts
        except SlackRefused as error:
            raise Undecidable(f"can't tell whether it was shown: {error}") from error
        return None

    async def unfinished(self, at: Address, since: str) -> list[str]:
        """The app's unfinished messages in a thread, oldest first: those without a key and without files."""
        account = await self.account()
        return sorted(
            [
                message.ts
                async for message in self._messages(at, since)
                if account.wrote(message) and message.ts != at.thread and message.key is None and not message.files
            ]
        )

    async def _messages(self, of: Address, oldest: str) -> AsyncIterator[Message]:
        """Yield those of a thread, oldest first, or of a chat, newest first; raises `Undecidable` after 2,000."""
        async for page in self.pages(of, 10, oldest=oldest, limit=200, include_all_metadata=True):
            for message in page.messages:
                yield message
        if page.next_cursor:
            raise Undecidable("too many messages came since to tell whether it was shown")

    async def pages(self, of: Address, most: int, seconds: float = ANSWER_SECONDS, **about: Any) -> AsyncIterator[Page]:
        """Yield at most so many pages of the messages of a thread or a chat; `about` is for Slack's API."""
        cursor: str | None = None
        for _ in range(most):
            if of.thread:
                request = self.web.conversations_replies(channel=of.chat, ts=of.thread, cursor=cursor, **about)
            else:
                request = self.web.conversations_history(channel=of.chat, cursor=cursor, **about)
            yield (page := await self.call(request, Page, seconds))
            if not (cursor := page.next_cursor):
                return

    async def close(self) -> None:
        """Close the HTTP session; the next call opens another."""
        http: ClientSession | None = vars(self).pop("http", None)
        vars(self).pop("web", None)
        if http is not None:
            await http.close()


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of the SDK and aiohttp into `PlatformError`."""
    from aiohttp import ClientConnectorError, ClientError, ConnectionTimeoutError, InvalidURL
    from slack_sdk.errors import SlackApiError

    try:
        yield
    except SlackApiError as error:
        raise _response_error(error.response) from None
    except (ClientConnectorError, ConnectionTimeoutError, InvalidURL) as error:
        raise Unreachable(f"cannot connect to Slack: {type(error).__name__}") from None
    except (ClientError, OSError) as error:
        raise Unanswered(f"no answer from Slack: {type(error).__name__}") from None


def _response_error(response: Any) -> PlatformError:
    """The error for an answer that is not "ok"; `response` is the SDK's, or aiohttp's if the body is not JSON."""
    data = getattr(response, "data", None)
    told: Mapping[str, Any] = data if isinstance(data, dict) else {}
    status = getattr(response, "status_code", 0) or getattr(response, "status", 0)
    wait = seconds_to_wait((getattr(response, "headers", None) or {}).get("Retry-After"))
    return refusal(status, str(told.get("error") or ""), str(told.get("needed") or ""), wait)


def metadata(key: str) -> dict[str, Any]:
    """The metadata by which the channel finds its own message again."""
    return {"event_type": EVENT_TYPE, "event_payload": {"key": key}}
