"""Answers where the app may not write: Slack takes them at an address that came with a slash command or a press."""

from collections.abc import Sequence

from channels.slack.client import Block
from channels.slack.errors import Refused
from channels.slack.files import Files
from channels.slack.kept import Kept
from gateway.domain.inbound import Address

_NOT_IN_THERE = {"channel_not_found", "not_in_channel"}


class Replies:
    """`kept` knows the newest address in each chat; it is good for five answers within half an hour."""

    def __init__(self, files: Files, kept: Kept) -> None:
        self._files = files
        self._kept = kept

    def expect(self, at: Address, url: object) -> None:
        """Somebody there waits for an answer."""
        if isinstance(url, str) and url:
            self._kept.put(f"reply {at.chat}", url)

    async def stand_in(self, refused: Refused, at: Address, text: str, blocks: Sequence[Block]) -> None:
        """Show it to whoever waits there, and to nobody else; raises `refused` when that is impossible, too."""
        name = f"reply {at.chat}"
        url = self._kept.get(name)
        if refused.code not in _NOT_IN_THERE or url is None:
            raise refused
        shown = {"text": text, "unfurl_links": False, "unfurl_media": False} | ({"blocks": blocks} if blocks else {})
        try:
            async with self._files.transfer("POST", url, json=shown | {"response_type": "ephemeral"}):
                pass
        except Refused:
            self._kept.drop(name)
            raise refused from None
