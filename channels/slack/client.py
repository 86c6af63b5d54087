"""Slack's Web API: the SDK's client, its errors as this channel's, its answers read."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from logging import Logger
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from channels.slack.errors import Refused, refusal
from channels.slack.payloads import EVENT_TYPE, Message, Page, Payload, Posted, Socket, Us
from gateway.domain.channels.platform import PlatformError, Unanswered, Undecidable, Unreachable, seconds_to_wait
from gateway.domain.conversation.inbound import Address

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from slack_sdk.web.async_client import AsyncWebClient
    from slack_sdk.web.async_slack_response import AsyncSlackResponse

CONNECT_SECONDS = 10
ANSWER_SECONDS = 30.0
BRIEF_SECONDS = 5.0
A_WEEK = 7 * 86400

Answer = TypeVar("Answer", bound=BaseModel)
Block = dict[str, Any]


class Client:
    """Calls over one HTTP session, without the SDK's own retries; raises `PlatformError`."""

    def __init__(self, bot_token: str, app_token: str, base_url: str | None) -> None:
        self._app_token = app_token
        self.bot_token = bot_token
        self.base_url = base_url
        self._us: Us | None = None

    @cached_property
    def http(self) -> "ClientSession":
        """Gives up connecting, and nothing else."""
        from aiohttp import ClientSession, ClientTimeout

        return ClientSession(timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS))

    @cached_property
    def web(self) -> "AsyncWebClient":
        """The SDK's client, silent, for it logs addresses. An API of your own is never reached through a proxy."""
        from slack_sdk.web.async_client import AsyncWebClient

        base, quiet = self.base_url or AsyncWebClient.BASE_URL, Logger("slack_sdk", level=100)
        web = AsyncWebClient(self.bot_token, base_url=base, session=self.http, retry_handlers=[], logger=quiet)
        if self.base_url:
            web.proxy = None
        return web

    async def call(
        self, request: Awaitable["AsyncSlackResponse"], answer: type[Answer], seconds: float = ANSWER_SECONDS
    ) -> Answer:
        """The answer to one of the calls of `web`."""
        try:
            with translated():
                async with asyncio.timeout(seconds):
                    return answer.model_validate((await request).data)
        except (ValidationError, AttributeError, TypeError, ValueError):
            raise Unanswered("unreadable answer from Slack") from None

    async def attempt(self, request: Awaitable["AsyncSlackResponse"]) -> None:
        """Something nice to have: Slack may refuse it."""
        with suppress(PlatformError):
            await self.call(request, Payload, BRIEF_SECONDS)

    async def us(self) -> Us:
        """Who the bot token belongs to, asked for once."""
        if self._us is None:
            self._us = await self.call(self.web.auth_test(), Us, BRIEF_SECONDS)
        return self._us

    async def socket_url(self) -> str:
        """A fresh address for one websocket."""
        request = self.web.apps_connections_open(app_token=self._app_token)
        return (await self.call(request, Socket, CONNECT_SECONDS)).url

    async def post(self, to: Address, text: str, key: str, blocks: Sequence[Block] = ()) -> str:
        """The id of the new message. No link previews: Slack would fetch whatever address a model wrote."""
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
        """Take back a message of ours."""
        await self.call(self.web.chat_delete(channel=at.chat, ts=ts), Payload)

    async def find(self, at: Address, key: str) -> str | None:
        """The message that was sent with this key; what Slack does not tell, or is too much to read, is in doubt."""
        try:
            async for message in self._messages(at, f"{time.time() - A_WEEK:.6f}"):
                if message.key == key:
                    return message.ts
        except Refused as error:
            raise Undecidable(f"cannot look whether it was shown: {error}") from error
        return None

    async def unfinished(self, at: Address, since: str) -> list[str]:
        """Messages of ours in a thread, oldest first, that were never finished: all else of ours has a key or files."""
        us = await self.us()
        left = [
            message.ts
            async for message in self._messages(at, since)
            if us.wrote(message) and message.ts != at.thread and message.key is None and not message.files
        ]
        return sorted(left)

    async def _messages(self, of: Address, oldest: str) -> AsyncIterator[Message]:
        """Of a thread, oldest first, or of a chat, newest first; two thousand at most."""
        cursor: str | None = None
        for _ in range(10):
            about: dict[str, Any] = {"oldest": oldest, "cursor": cursor, "limit": 200, "include_all_metadata": True}
            if of.thread:
                request = self.web.conversations_replies(channel=of.chat, ts=of.thread, **about)
            else:
                request = self.web.conversations_history(channel=of.chat, **about)
            page = await self.call(request, Page)
            for message in page.messages:
                yield message
            cursor = page.next_cursor
            if not cursor:
                return
        raise Undecidable("too many messages came since to tell whether it was shown")

    async def close(self) -> None:
        """Close the HTTP session; the next call begins another."""
        http: ClientSession | None = vars(self).pop("http", None)
        vars(self).pop("web", None)
        if http is not None:
            await http.close()


@contextmanager
def translated() -> Iterator[None]:
    """What the SDK and aiohttp raise, as `PlatformError`."""
    from aiohttp import ClientConnectorError, ClientError, ConnectionTimeoutError, InvalidURL
    from slack_sdk.errors import SlackApiError

    try:
        yield
    except SlackApiError as error:
        raise _refusal(error.response) from None
    except (ClientConnectorError, ConnectionTimeoutError, InvalidURL) as error:
        raise Unreachable(f"cannot connect to Slack: {type(error).__name__}") from None
    except (ClientError, OSError) as error:
        raise Unanswered(f"no answer from Slack: {type(error).__name__}") from None


def _refusal(response: Any) -> PlatformError:
    """What an answer that is not "ok" means; it is the SDK's, or aiohttp's when it was not even JSON."""
    data = getattr(response, "data", None)
    told: Mapping[str, Any] = data if isinstance(data, dict) else {}
    status = getattr(response, "status_code", 0) or getattr(response, "status", 0)
    wait = seconds_to_wait((getattr(response, "headers", None) or {}).get("Retry-After"))
    return refusal(status, str(told.get("error") or ""), str(told.get("needed") or ""), wait)


def metadata(key: str) -> dict[str, Any]:
    """What makes a message ours, and this one."""
    return {"event_type": EVENT_TYPE, "event_payload": {"key": key}}
