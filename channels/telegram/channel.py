"""Telegram as a channel."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from channels.telegram.reception import Polling, PollTimeouts, Webhook
from channels.telegram.sdk import load_aiogram
from gateway.domain.channels.channel import Accept, Capabilities, Drafts, Menu, Outgoing, WebhookReply
from gateway.domain.channels.platform import Logger, PlatformError, Recovery, TokenRefused, TooFast
from gateway.domain.conversation.inbound import Address, Attachment
from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.splitting import utf16_tail

if TYPE_CHECKING:
    from channels.telegram.client import Client

UNUSED_SECONDS = 2
"""Seconds within which another program polls again after a conflict."""


NOT_RECEIVING = WebhookReply(503, "not receiving yet")


def preload() -> None:
    """Import the HTTP client, as far as the first poll needs it; aiogram is loaded once updates flow."""
    import_module("channels.telegram.client")


@dataclass(kw_only=True, eq=False, repr=False)
class Telegram:
    """One bot; call `open` first. `webhook_url` None means polling."""

    name = "telegram"
    token: str
    api_base: str | None
    webhook_url: str | None
    webhook_secret: str
    commands: Menu
    log: Logger
    rich: bool = True
    timeouts: PollTimeouts = field(default_factory=PollTimeouts)
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self.capabilities = Capabilities(
            max_text=4096,
            max_marks=100,
            drafts=Drafts.PRIVATE,
            typing=True,
            reactions=True,
            buttons=True,
            max_file=50_000_000,
            silence=self.timeouts.silence if self.webhook_url is None else None,
        )
        self._recovery = Recovery(self.name, self.log, self.pause)
        self._opened: Client | None = None
        self._polling: Polling | None = None
        self._webhook: Webhook | None = None
        self._no_drafts_before = 0.0

    async def open(self) -> None:
        """Make no request yet: the first poll is the first one."""
        from channels.telegram.client import Client

        self._opened = Client(self.token, self.api_base)

    async def probe(self) -> str:
        """The bot's name, by getMe, which leaves the updates of another connection alone."""
        await self.open()
        try:
            return f"@{await self._client.username()}"
        except TokenRefused as error:
            raise OwnerMustAct(str(error)) from error

    async def check_unused(self) -> None:
        """Poll for a few seconds; raises `Conflict` if another program polls, too. Acknowledges no updates."""
        for _ in range(2):
            await self._client.updates(None, UNUSED_SECONDS, UNUSED_SECONDS + self.timeouts.stall)

    def deep_link(self, code: str) -> str:
        """A link whose **Start** button sends `/start CODE` to the bot; "" before the name is known."""
        name = self._opened.known_name if self._opened else ""
        return f"https://t.me/{name}?start={code}" if name else ""

    @property
    def _client(self) -> "Client":
        if self._opened is None:
            raise RuntimeError("the channel is not open")
        return self._opened

    @property
    def heard_at(self) -> float | None:
        """The monotonic time of the last answer to a poll; None with a webhook, which may be silent for any time."""
        return None if self._polling is None else self._polling.heard_at

    @property
    def trouble(self) -> str:
        """The last refusal by Telegram, or since when it can't be reached; "" while it works."""
        return self._recovery.trouble

    async def receive(self, accept: Accept) -> None:
        """Receive updates by polling or webhook, until cancelled."""
        from channels.telegram.intake import Intake

        intake = Intake(self._client, int(self.token.partition(":")[0]), accept, self.log)
        async with asyncio.TaskGroup() as group:
            group.create_task(intake.answer_presses())
            if self.webhook_url is None:
                self._polling = Polling(self._client, self._recovery, self.log, self.timeouts)
                group.create_task(self._introduce(self._polling.answered))
                await self._polling.run(intake.take, intake.take_commands)
            else:
                self._webhook = Webhook(self.webhook_secret, intake.take)
                group.create_task(self._introduce(self._webhook.announced))
                await self._webhook.announce(self._client, self.webhook_url, self._recovery)

    def refuses(self, headers: Mapping[str, str]) -> WebhookReply | None:
        """The refusal of a request to `/webhook/telegram`; None if it comes from Telegram and can be received."""
        if self.webhook_url is None:
            return WebhookReply(404, "this bot polls")
        return self._webhook.refuses(headers) if self._webhook else NOT_RECEIVING

    async def deliver(self, body: bytes) -> WebhookReply:
        """Receive a pushed update."""
        return await self._webhook.deliver(body) if self._webhook else NOT_RECEIVING

    async def send(self, message: Outgoing) -> str:
        """Send one message; its text is rendered from Markdown."""
        from channels.telegram.sending import send

        return await send(self._client, message, rich=self.rich)

    async def typing(self, address: Address) -> None:
        """Show "typing" for five seconds."""
        with suppress(PlatformError):
            await self._client.do("sendChatAction", address, action="typing")

    async def draft(self, address: Address, draft: int, text: str) -> bool:
        """Show the last 4,096 units of `text` and a stop button; Telegram keeps a draft for 30 seconds."""
        now = asyncio.get_running_loop().time()
        if now < self._no_drafts_before:
            return False
        try:
            shown = utf16_tail(text, self.capabilities.max_text)
            await self._client.do("sendMessageDraft", address, draft_id=draft, text=shown, can_stop=True)
        except TooFast as error:
            self._no_drafts_before = now + (error.retry_after or 1.0)
            return False
        except PlatformError:
            return False
        return True

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        """Add or remove 👀, in groups only: a private chat shows the answer growing."""
        from channels.telegram.client import message_number

        number = message_number(platform_id)
        if number is None or not address.chat.startswith("-"):
            return
        eyes = [{"type": "emoji", "emoji": "👀"}] if seen else []
        with suppress(PlatformError):
            await self._client.do("setMessageReaction", chat_id=int(address.chat), message_id=number, reaction=eyes)

    def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield the bytes of a file of at most 20 MB; bots get no larger ones."""
        return self._client.fetch(attachment)

    async def close(self) -> None:
        """Close the HTTP session."""
        if self._opened is not None:
            await self._opened.close()

    async def _introduce(self, flowing: asyncio.Event) -> None:
        """Load aiogram and build its models, look up the bot's name and set the menu, once updates flow."""
        await flowing.wait()
        await asyncio.to_thread(load_aiogram)
        from aiogram.types import Update

        Update.model_rebuild()  # takes 0.1 s, which would otherwise delay the first message
        menu = [{"command": name, "description": description} for name, description in self.commands]
        try:
            await self._client.username()
            await self._client.do("setMyCommands", commands=menu)
        except PlatformError as error:
            self.log.warning("telegram.menu_not_set", why=str(error))
