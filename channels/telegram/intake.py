"""Updates in, accepted messages out: the part that polling and webhook share."""

from collections.abc import Sequence

from channels.telegram.client import Client
from channels.telegram.raw import update_id
from channels.telegram.updates import Unreadable, Us, to_inbound
from gateway.domain.channel import Accept
from gateway.domain.inbound import Inbound
from gateway.domain.json import JsonObject
from gateway.domain.logging import Logger


class Intake:
    """Reads updates, skips what cannot be read, and has the rest accepted in order."""

    def __init__(self, client: Client, bot_id: int, accept: Accept, log: Logger) -> None:
        self._client = client
        self._bot_id = bot_id
        self._accept = accept
        self._logger = log

    async def take(self, updates: Sequence[JsonObject]) -> None:
        """Returning means committed; raises what `accept` raises, and `TelegramError` if our name is unknown yet."""
        if not updates:
            return
        us = Us(self._bot_id, await self._client.username())
        read = [self._read(update, us) for update in updates]
        batch = [inbound for inbound in read if inbound is not None]
        if batch:
            await self._accept(batch)

    def _read(self, update: JsonObject, us: Us) -> Inbound | None:
        try:
            return to_inbound(update, us)
        except Unreadable as error:
            self._logger.warning("telegram.update_skipped", update=update_id(update), why=str(error))
            return None
