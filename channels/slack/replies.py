"""Answers where the app may not write: Slack takes them at an address that came with a slash command or a press."""

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from channels.slack.client import Block
from channels.slack.errors import Refused
from channels.slack.files import Files
from channels.slack.kept import Kept
from gateway.domain.conversation.inbound import Address

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_NOT_IN_THERE = {"channel_not_found", "not_in_channel"}
_NAME = "reply "


class Replies:
    """`kept` knows the newest address in each chat; it is good for five answers within half an hour.

    Whoever has it may write there, so it is stored sealed with a key that the bot token makes.
    """

    def __init__(self, files: Files, kept: Kept, bot_token: str) -> None:
        self._files = files
        self._kept = kept
        self._bot_token = bot_token

    async def expect(self, at: Address, url: object) -> None:
        """Somebody there waits for an answer."""
        if isinstance(url, str) and url:
            await self._kept.note(_NAME + at.chat, self._seal(url))

    async def stand_in(self, refused: Refused, at: Address, text: str, blocks: Sequence[Block]) -> None:
        """Show it to whoever waits there, and to nobody else; raises `refused` when that is impossible, too."""
        url = self._address(at)
        if refused.code not in _NOT_IN_THERE or url is None:
            raise refused
        shown = {"text": text, "unfurl_links": False, "unfurl_media": False} | ({"blocks": blocks} if blocks else {})
        try:
            async with self._files.transfer("POST", url, json=shown | {"response_type": "ephemeral"}):
                pass
        except Refused:
            await self._kept.drop(_NAME + at.chat)
            raise refused from None

    def sealed(self, entries: Mapping[str, str]) -> Mapping[str, str]:
        """The same, with the addresses among them sealed."""
        return {name: self._seal(value) if name.startswith(_NAME) else value for name, value in entries.items()}

    def _address(self, at: Address) -> str | None:
        """None also if it was sealed with another token."""
        from cryptography.fernet import InvalidToken

        try:
            return self._key().decrypt(self._kept.get(_NAME + at.chat) or "").decode()
        except InvalidToken:
            return None

    def _seal(self, url: str) -> str:
        return self._key().encrypt(url.encode()).decode()

    def _key(self) -> "Fernet":
        from cryptography.fernet import Fernet

        return Fernet(urlsafe_b64encode(sha256(f"supaclaw reply {self._bot_token}".encode()).digest()))
