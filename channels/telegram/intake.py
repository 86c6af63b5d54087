"""From updates to accepted messages: shared by polling and webhook."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from channels.telegram.client import MAX_TEXT, Client
from channels.telegram.sdk import load_aiogram
from gateway.domain.channels.channel import Accept
from gateway.domain.channels.platform import Logger, PlatformError
from gateway.domain.channels.routing import command_in
from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.json import JsonObject
from gateway.domain.text.splitting import utf16_len

if TYPE_CHECKING:
    from channels.telegram.updates import BotAccount


class Intake:
    """Reads updates and has them accepted in order. The first ones load aiogram, if nothing else has."""

    def __init__(self, client: Client, bot_id: int, accept: Accept, log: Logger) -> None:
        self._client = client
        self._bot_id = bot_id
        self._accept = accept
        self._logger = log
        self._account: BotAccount | None = None
        self._long: dict[tuple[Address, Sender], Inbound] = {}
        self._presses: asyncio.Queue[JsonObject] = asyncio.Queue(100)

    async def take(self, updates: Sequence[JsonObject]) -> None:
        """Commit updates; raises as `accept` does, and `PlatformError` if the bot's name can't be looked up."""
        if not updates:
            return
        if batch := [self._joined_paste(inbound) for _, inbound in await self._read(updates)]:
            await self._accept(batch)
        with suppress(asyncio.QueueFull):
            for update in updates:
                if "callback_query" in update:
                    self._presses.put_nowait(update)

    async def take_commands(self, updates: Sequence[JsonObject], after: int) -> None:
        """Commit commands behind the update `after`, but none of a chat of which another update waits before it."""
        chats, commands = set[Address](), list[Inbound]()
        for number, inbound in await self._read(updates):
            chat = replace(inbound.address, thread="")
            if chat not in chats and number > after and command_in(inbound)[0] and not inbound.edits:
                commands.append(inbound)
            else:
                chats.add(chat)
        if commands:
            await self._accept(commands)

    async def answer_presses(self) -> None:
        """Answer button presses, one after another, until cancelled.

        In a private chat the buttons are removed. In a group they stay, since a person who isn't allowed could
        otherwise remove them. A message that is no longer accessible has the date 0.
        """
        while True:
            match (await self._presses.get())["callback_query"]:
                case {
                    "id": str(press),
                    "message": {"message_id": int(id), "date": int(date), "chat": {"id": int(chat)}},
                }:
                    with suppress(PlatformError):
                        await self._client.do("answerCallbackQuery", callback_query_id=press)
                    with suppress(PlatformError):
                        if date and chat > 0:
                            await self._client.do("editMessageReplyMarkup", chat_id=chat, message_id=id)

    def _joined_paste(self, inbound: Inbound) -> Inbound:
        """Mark the parts of a long text that an app split into several messages as one album.

        Apps split in the second half of the longest message, so every part but the last is at least that long.
        """
        if inbound.attachments or not inbound.platform_id.isdecimal():
            return inbound
        key, longest_gap = (inbound.address, inbound.sender), timedelta(seconds=1)
        before, is_long = self._long.get(key), MAX_TEXT // 2 < utf16_len(inbound.text) <= MAX_TEXT
        if before is not None and timedelta() <= inbound.sent_at - before.sent_at <= longest_gap:
            inbound = replace(inbound, album=before.album)
        elif is_long:
            inbound = replace(inbound, album=f"paste:{inbound.platform_id}")
        if is_long:
            recent = {who: part for who, part in self._long.items() if inbound.sent_at - part.sent_at <= longest_gap}
            self._long = recent | {key: inbound}
        return inbound

    async def _read(self, updates: Sequence[JsonObject]) -> Sequence[tuple[int, Inbound]]:
        if self._account is None:
            await asyncio.to_thread(load_aiogram)
        from channels.telegram.updates import BotAccount, read

        self._account = self._account or BotAccount(self._bot_id, await self._client.username())
        return list(read(updates, self._account, self._logger))
