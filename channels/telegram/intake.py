"""From updates to accepted messages: shared by polling and webhook."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from channels.telegram.client import MAX_TEXT, Client
from channels.telegram.reception import update_id
from channels.telegram.updates import BotAccount, UnreadableUpdate, to_inbound
from gateway.domain.channels.channel import Accept
from gateway.domain.channels.platform import Logger, PlatformError
from gateway.domain.channels.routing import command_in
from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.json import JsonObject
from gateway.domain.text.splitting import utf16_len


class Intake:
    """Reads updates, skips unreadable ones, and has the rest accepted in order."""

    def __init__(self, client: Client, bot_id: int, accept: Accept, log: Logger) -> None:
        self._client = client
        self._bot_id = bot_id
        self._accept = accept
        self._logger = log
        self._long: dict[tuple[Address, Sender], Inbound] = {}
        self._presses: asyncio.Queue[JsonObject] = asyncio.Queue(100)

    async def take(self, updates: Sequence[JsonObject]) -> None:
        """Commit updates; raises as `accept` does, and `PlatformError` if the bot's name can't be looked up."""
        if not updates:
            return
        account = BotAccount(self._bot_id, await self._client.username())
        read = [self._read(update, account) for update in updates]
        batch = [self._joined_paste(inbound) for inbound in read if inbound is not None]
        if batch:
            await self._accept(batch)
        with suppress(asyncio.QueueFull):
            for update in updates:
                if "callback_query" in update:
                    self._presses.put_nowait(update)

    async def take_commands(self, updates: Sequence[JsonObject], after: int) -> None:
        """Commit commands behind the update `after`, but none of a chat of which another update waits before it."""
        account = BotAccount(self._bot_id, await self._client.username())
        chats, commands = set[Address](), list[Inbound]()
        for update in updates:
            with suppress(UnreadableUpdate):
                if (inbound := to_inbound(update, account)) is None:
                    continue
                chat = replace(inbound.address, thread="")
                if chat not in chats and update_id(update) > after and command_in(inbound)[0] and not inbound.edits:
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

    def _read(self, update: JsonObject, account: BotAccount) -> Inbound | None:
        try:
            return to_inbound(update, account)
        except UnreadableUpdate as error:
            self._logger.warning("telegram.update_skipped", update=update_id(update), why=str(error))
            return None
