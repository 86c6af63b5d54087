"""Updates pushed by Telegram: the secret is checked, the update accepted, and only then answered."""

import asyncio
import json
from collections.abc import Mapping
from hmac import compare_digest
from typing import TYPE_CHECKING

from channels.telegram.polling import Take
from gateway.domain.channels.channel import WebhookReply
from gateway.domain.channels.platform import PlatformError, Recovery
from gateway.domain.errors import TryAgainLater

if TYPE_CHECKING:
    from channels.telegram.client import Client

SECRET_HEADER = "x-telegram-bot-api-secret-token"


class Webhook:
    """One delivery at a time, in the order they come in."""

    def __init__(self, secret: str, take: Take) -> None:
        self.announced = asyncio.Event()
        self._secret = secret
        self._take = take
        self._turn = asyncio.Lock()

    async def announce(self, client: "Client", url: str, recovery: Recovery) -> None:
        """Have updates pushed to `url`; ask until Telegram agrees."""
        while True:
            try:
                await client.push_to(url, self._secret)
            except PlatformError as error:
                await recovery.after(error)
            else:
                recovery.over()
                return self.announced.set()

    def refuses(self, headers: Mapping[str, str]) -> WebhookReply | None:
        """Compare the secret, in constant time."""
        given = next((value for name, value in headers.items() if name.lower() == SECRET_HEADER), "")
        return None if compare_digest(given.encode(), self._secret.encode()) else WebhookReply(401, "wrong secret")

    async def deliver(self, body: bytes) -> WebhookReply:
        """200 only once the update is committed; Telegram repeats what got a 5xx."""
        try:
            update = json.loads(body)
        except (ValueError, RecursionError):
            update = None
        if not isinstance(update, dict):
            return WebhookReply(400, "not an update")
        try:
            async with self._turn:
                await self._take([update])
        except (PlatformError, TryAgainLater):
            return WebhookReply(503, "try again later")
        return WebhookReply(200)
