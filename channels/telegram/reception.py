"""Receiving updates, by polling or webhook: a batch is acknowledged once it is accepted."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from typing import TYPE_CHECKING, TypeAlias

from channels.telegram.errors import Conflict
from gateway.domain.channels.channel import WebhookReply
from gateway.domain.channels.platform import Logger, PlatformError, Recovery, Refused, TokenRefused, TooFast, TurnedAway
from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.json import JsonObject, json_or_text

if TYPE_CHECKING:
    from channels.telegram.client import Client


TakeUpdates: TypeAlias = Callable[[Sequence[JsonObject]], Awaitable[None]]
"""Commits updates, in order."""
TakeCommands: TypeAlias = Callable[[Sequence[JsonObject], int], Awaitable[None]]
"""Commits the commands among updates, those behind an id, of chats that no other update is of."""

BATCH = 50
"""Updates of a batch: Telegram shows twice as many, so that commands behind a full one are seen while it's stored."""
LOOK_AFTER_SECONDS = 0.2
"""After which a batch is slow; then twice as long, and so on."""
LOOK_SECONDS = 1.0
"""For which the next batch may be late because Telegram doesn't answer a look."""


@dataclass(frozen=True, slots=True)
class PollTimeouts:
    """Seconds for which Telegram may hold a poll, and after which more the connection counts as stalled."""

    poll: int = 30
    stall: float = 10.0

    @property
    def silence(self) -> float:
        """Seconds of silence in which a stalled connection would have been replaced twice."""
        return 3 * (self.poll + self.stall)


class Polling:
    """Polls for updates forever; a batch that isn't accepted is requested again."""

    def __init__(self, client: "Client", recovery: Recovery, log: Logger, timeouts: PollTimeouts) -> None:
        self.answered = asyncio.Event()
        self.heard_at: float | None = None
        self._client = client
        self._recovery = recovery
        self._logger = log
        self._timeouts = timeouts
        self._offset: int | None = None
        self._webhook_removed = False

    async def run(self, take: TakeUpdates, take_commands: TakeCommands) -> None:
        """Hand every batch to `take`, in order, until cancelled; meanwhile commands of others to `take_commands`."""
        while True:
            try:
                updates = await self._ask()
                await self._hand_over(updates, take, take_commands)
            except SupaclawError as error:
                await self._recover(error)
            except Exception as error:
                self._logger.exception("telegram.batch_failed")
                await self._recovery.after(error)
            else:
                self._acknowledge(updates)

    async def _hand_over(self, updates: Sequence[JsonObject], take: TakeUpdates, take_commands: TakeCommands) -> None:
        """Have a batch committed. One that is slow must not keep /stop from the turn of another chat."""
        taking, pause = asyncio.ensure_future(take(updates)), LOOK_AFTER_SECONDS
        try:
            while not (await asyncio.wait([taking], timeout=pause))[0]:
                pause *= 2
                await self._look_behind(max(map(update_id, updates)), take_commands)
            await taking
        finally:
            taking.cancel()
            await asyncio.wait([taking])

    async def _look_behind(self, last: int, take_commands: TakeCommands) -> None:
        """Take them early; if that fails, they come again with the next batch."""
        try:
            with suppress(SupaclawError):
                await take_commands(await self._client.updates(self._offset, 0, LOOK_SECONDS), last)
        except Exception:
            self._logger.exception("telegram.commands_failed")

    async def _ask(self) -> Sequence[JsonObject]:
        """Poll once; the first poll, and the first after a failure, return at once to show that Telegram answers."""
        wait = self._timeouts.poll if self.answered.is_set() and not self._recovery.needed else 0
        try:
            updates = await self._client.updates(self._offset, wait, wait + self._timeouts.stall, BATCH)
        except (Refused, TokenRefused, TurnedAway) as error:
            self.heard_at = time.monotonic() + ((isinstance(error, TooFast) and error.retry_after) or 0.0)
            raise
        self.heard_at = time.monotonic()
        return updates

    def _acknowledge(self, updates: Sequence[JsonObject]) -> None:
        if updates:
            self._offset = max(map(update_id, updates)) + 1
        self._webhook_removed = False
        self._recovery.over()
        self.answered.set()

    async def _recover(self, error: SupaclawError) -> None:
        """Remove a leftover webhook, once: if it comes back, another program uses it."""
        if not isinstance(error, Conflict) or "webhook" not in str(error) or self._webhook_removed:
            return await self._recovery.after(error)
        self._webhook_removed = True
        try:
            return await self._client.do("deleteWebhook")
        except PlatformError as failure:
            return await self._recovery.after(failure)


def update_id(raw: JsonObject) -> int:
    """The id of an update, also of an unreadable one; 0 if it has none."""
    number = raw.get("update_id")
    return number if isinstance(number, int) else 0


SECRET_HEADER = "x-telegram-bot-api-secret-token"


class Webhook:
    """Receives pushed updates, one at a time, in order."""

    def __init__(self, secret: str, take: TakeUpdates) -> None:
        self.announced = asyncio.Event()
        self._secret = secret
        self._take = take
        self._turn = asyncio.Lock()

    async def announce(self, client: "Client", url: str, recovery: Recovery) -> None:
        """Register `url`, and retry until Telegram accepts it."""
        while True:
            try:
                await client.push_to(url, self._secret)
            except PlatformError as error:
                await recovery.after(error)
            else:
                recovery.over()
                return self.announced.set()

    def refuses(self, headers: Mapping[str, str]) -> WebhookReply | None:
        """The refusal of a request with a wrong secret, which is compared in constant time; None for a right one."""
        given = next((value for name, value in headers.items() if name.lower() == SECRET_HEADER), "")
        return None if compare_digest(given.encode(), self._secret.encode()) else WebhookReply(401, "wrong secret")

    async def deliver(self, body: bytes) -> WebhookReply:
        """Commit one update: 200 once it is committed, 503 if Telegram is to repeat it, 400 for anything else."""
        update = json_or_text(body.decode(errors="replace"))
        if not isinstance(update, dict):
            return WebhookReply(400, "not an update")
        try:
            async with self._turn:
                await self._take([update])
        except (PlatformError, TryAgainLater):
            return WebhookReply(503, "try again later")
        return WebhookReply(200)
