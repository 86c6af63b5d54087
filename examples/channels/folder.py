"""A channel in one file: a folder in which people leave letters, `NAME-NUMBER.txt`, and find answers.

Copied into `channels/`, it is configured as `channels.folder`. The gateway imports `Settings`, `create` and `preload`.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field

from gateway.domain.channels.channel import (
    Accept,
    Capabilities,
    Channel,
    ChannelFacts,
    FetchFailed,
    Outgoing,
    SendDelayed,
)
from gateway.domain.channels.platform import Logger
from gateway.domain.conversation.inbound import Address, Attachment, Inbound, Sender
from gateway.domain.errors import TryAgainLater
from gateway.domain.settings import ChannelSettings

_LETTER = re.compile(r"([a-z]+)-(\d+)\.txt")
_POLL_SECONDS = 0.5


class Settings(ChannelSettings):
    """The `channels.folder` section of config.json."""

    TITLE = "Folder"
    PERSON = "[a-z]+"
    IDS = "a person's is the name that their letters begin with, such as ada"

    path: Path = Field(description="The folder of the letters.")


def create(
    settings: Settings, *, commands: Sequence[tuple[str, str]], log: Logger, data: Path, facts: ChannelFacts
) -> Channel:
    """The channel, not yet open."""
    del commands, log, data, facts
    return Folder(settings.path)


def preload() -> None:
    """Import the SDK, which this channel doesn't have."""


@dataclass
class Folder:
    """Letters are messages, in the order of their numbers; accepted ones are renamed, so a restart finds the rest."""

    path: Path
    name: str = "folder"
    capabilities: Capabilities = field(default=Capabilities(max_text=1_000_000, idempotent_send=True))
    heard_at: float | None = None
    trouble: str = ""

    async def open(self) -> None:
        """Make the folder."""
        self.path.mkdir(parents=True, exist_ok=True)

    async def receive(self, accept: Accept) -> None:
        """Accept what is there, forever; a letter counts as read only when it is committed."""
        while True:
            letters = await asyncio.to_thread(self._letters)
            try:
                await accept([message for _, message in letters])
            except TryAgainLater:
                letters = []
            for file, _ in letters:
                file.rename(file.with_suffix(".read"))
            self.heard_at = time.monotonic()
            await asyncio.sleep(_POLL_SECONDS)

    async def send(self, message: Outgoing) -> str:
        """Write the answer; a repeated send writes the same file again."""
        file = self.path / f"{message.address.chat}-{message.key.replace('/', '.')}.answer.md"
        try:
            await asyncio.to_thread(file.write_text, message.text, "utf-8")
        except OSError as error:
            raise SendDelayed(f"{file} can't be written: {error.strerror}") from error
        return file.name

    async def typing(self, address: Address) -> None:
        """Show nothing: a folder has no room for it."""

    async def draft(self, address: Address, draft: int, text: str) -> bool | None:
        """Show nothing."""
        del address, draft, text
        return None

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        """Show nothing."""

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Letters have no files."""
        del attachment
        raise FetchFailed("a letter has no files")
        yield b""

    async def close(self) -> None:
        """Hold nothing."""

    def _letters(self) -> list[tuple[Path, Inbound]]:
        named = [(found, file) for file in self.path.glob("*.txt") if (found := _LETTER.fullmatch(file.name))]
        ordered = sorted(named, key=lambda each: int(each[0][2]))
        return [(file, self._message(found[1], file)) for found, file in ordered]

    def _message(self, person: str, file: Path) -> Inbound:
        return Inbound(
            Address(self.name, "letters", person),
            Sender(person, person.title()),
            file.read_text("utf-8"),
            file.stem,
            datetime.fromtimestamp(file.stat().st_mtime, UTC),
            private=True,
            as_owner=True,
        )
