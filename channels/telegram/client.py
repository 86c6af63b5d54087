"""The Bot API as far as it is used here. Imports aiogram: run `preload` first."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from aiogram.types import File, MessageId, User

from channels.telegram.errors import Moved
from channels.telegram.session import ANSWER_SECONDS, Session
from gateway.domain.channels.channel import Button, FetchDelayed, FetchFailed, Outgoing
from gateway.domain.channels.platform import PlatformError, Refused
from gateway.domain.conversation.inbound import Address, Attachment
from gateway.domain.json import JsonObject

UPDATE_KINDS = ("message", "edited_message", "callback_query", "stopped_message_generation")
MAX_TEXT = 4096
BRIEF_SECONDS = 10
MAX_DOWNLOAD = 20 * 2**20


class Client:
    """Calls of one bot; they raise `PlatformError`."""

    def __init__(self, token: str, api_base: str | None) -> None:
        self._session = Session(token, api_base)
        self._username: str | None = None
        self._moved: dict[str, int] = {}
        """Groups that became supergroups; the numbers of their earlier messages mean others there."""

    async def updates(self, offset: int | None, wait: int, seconds: float) -> Sequence[JsonObject]:
        """What arrived from `offset` on, which acknowledges everything before it; `wait` is for Telegram."""
        # As they came, so that one that cannot be read harms no other.
        raw = list[dict[str, Any]]
        return await self._session.call(
            "getUpdates", raw, seconds, offset=offset, timeout=wait, allowed_updates=list(UPDATE_KINDS)
        )

    async def push_to(self, url: str, secret: str) -> None:
        """Have updates pushed there, one at a time: that is what keeps them in order."""
        kinds = list(UPDATE_KINDS)
        await self.do("setWebhook", url=url, secret_token=secret, max_connections=1, allowed_updates=kinds)

    async def username(self) -> str:
        """The bot's own name, asked for once."""
        if self._username is None:
            self._username = (await self._session.call("getMe", User, BRIEF_SECONDS)).username or ""
        return self._username

    @property
    def known_name(self) -> str:
        """The bot's own name, once it was asked for."""
        return self._username or ""

    async def show(self, message: Outgoing, method: str, seconds: float = ANSWER_SECONDS, **content: object) -> str:
        """Send a new message with this content by `method`, to wherever the chat is by now; its id."""
        try:
            return await self._show(message, method, seconds, content)
        except Moved as error:
            self._moved[message.address.chat] = error.chat
        return await self._show(message, method, seconds, content)

    async def _show(self, message: Outgoing, method: str, seconds: float, content: Mapping[str, object]) -> str:
        answered = None if message.address.chat in self._moved else message_number(message.reply_to or "")
        sent = await self._session.call(
            method,
            MessageId,
            seconds,
            **self._place(message.address),
            reply_parameters={"message_id": answered, "allow_sending_without_reply": True} if answered else None,
            reply_markup=_keyboard(message.buttons),
            **content,
        )
        return str(sent.message_id)

    async def do(self, method: str, to: Address | None = None, **parameters: object) -> None:
        """Call a method whose answer says only that it was done."""
        place = self._place(to) if to else {}
        await self._session.call(method, object, BRIEF_SECONDS, **place, **parameters)

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The bytes of a file, never more than Telegram hands to a bot; raises `FetchFailed` or `FetchDelayed`."""
        name, left = attachment.name or "the file", MAX_DOWNLOAD
        try:
            path = (await self._session.call("getFile", File, BRIEF_SECONDS, file_id=attachment.ref)).file_path or ""
            if path.startswith("/"):
                raise FetchFailed(f"{name} cannot be fetched: the Bot API server runs with --local; start it without")
            async for piece in self._session.download(path):
                left -= len(piece)
                if left < 0:
                    raise _too_large(name)
                yield piece
        except Refused as error:
            gone = FetchFailed(f"Telegram no longer provides {name}; send it again ({error})")
            raise (_too_large(name) if "too big" in str(error) else gone) from error
        except PlatformError as error:
            raise FetchDelayed(str(error)) from error

    def _place(self, address: Address) -> Mapping[str, int | None]:
        chat = self._moved.get(address.chat) or int(address.chat)
        return {"chat_id": chat, "message_thread_id": int(address.thread) if address.thread else None}

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


def message_number(platform_id: str) -> int | None:
    """The message that a platform id of ours speaks of, also that of an edit; None for the press of a button."""
    number = platform_id.partition(":")[0]
    return int(number) if number.isdecimal() else None


def _keyboard(buttons: Sequence[Button]) -> Mapping[str, object] | None:
    """Up to three side by side, more below each other; Telegram carries values of at most 64 bytes."""
    keys = [
        {"text": button.label, "callback_data": button.value}
        for button in buttons
        if button.label and 0 < len(button.value.encode()) <= 64
    ]
    return {"inline_keyboard": [keys] if len(keys) <= 3 else [[key] for key in keys]} if keys else None


def _too_large(name: str) -> FetchFailed:
    return FetchFailed(f"{name} is larger than 20 MB, the most that Telegram hands to a bot; send a smaller one")
