"""WhatsApp as a channel: the parts, put together."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from channels.whatsapp.pairing import LinkTimeouts, Pairing
from channels.whatsapp.sdk import MAX_FILE, preload
from channels.whatsapp.store import Store
from gateway.domain.channels.channel import Accept, Capabilities, FetchDelayed, Login, Outgoing, SendDelayed
from gateway.domain.channels.platform import Logger
from gateway.domain.conversation.inbound import Address, Attachment, Inbound
from gateway.domain.errors import OwnerMustAct

if TYPE_CHECKING:
    from neonize.aioze.client import NewAClient

    from channels.whatsapp.link import Link

MAX_TEXT = 16_000
SILENCE = 300.0
"""How long a healthy connection can be silent: until it is asked, and answers after up to 75 s, with room to spare."""
OFFLINE_PAUSE = 5.0
MOST_QUOTES = 500
LONGEST_QUOTE = 200


class WhatsApp:
    """One linked device. `open` comes first; without an account it waits for a login."""

    name = "whatsapp"
    capabilities = Capabilities(max_text=MAX_TEXT, typing=True, max_file=MAX_FILE, portable=False, silence=SILENCE)

    def __init__(self, *, store: Store, log: Logger, patience: LinkTimeouts | None = None) -> None:
        self._store = store
        self._logger = log
        self._patience = patience or LinkTimeouts()
        self._pairing = Pairing(store, self._patience)
        self._quotes: dict[str, str] = {}
        self._link: Link | None = None

    async def open(self) -> None:
        """Import neonize, in a thread, and begin to connect; raises `OwnerMustAct` when another process is linked."""
        try:
            self._store.open()
        except OwnerMustAct as error:
            self._pairing.over(str(error))
            raise
        await asyncio.to_thread(preload)
        from channels.whatsapp.link import Link

        self._link = Link(self._store, self._pairing, self._logger, self._patience)

    @property
    def heard_at(self) -> float | None:
        """When WhatsApp last answered or brought something; while it is asked nothing, now."""
        if self._link is None:
            return None
        return monotonic() if self._pairing.idle else self._link.heard_at

    @property
    def trouble(self) -> str:
        """Why nothing can arrive, "" when something can; to ask changes nothing."""
        told = self._pairing.login()
        return "" if told.state == "connected" else ": ".join(filter(None, (told.state, told.problem)))

    async def receive(self, accept: Accept) -> None:
        """Hand over what lies on disk until cancelled; raises what ends the link."""
        from channels.whatsapp.messages import hand_over_spool

        async def noting(batch: Sequence[Inbound]) -> None:
            """What was said lately in groups can be quoted."""
            self._quotes |= {said.platform_id: said.text[:LONGEST_QUOTE] for said in batch if not said.private}
            while len(self._quotes) > MOST_QUOTES:
                del self._quotes[next(iter(self._quotes))]
            await accept(batch)

        assert self._link is not None
        intake = asyncio.create_task(hand_over_spool(self._link, noting, self._logger))
        try:
            done, _ = await asyncio.wait({intake, self._link.running}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            intake.cancel()
            await asyncio.gather(intake, return_exceptions=True)

    async def send(self, message: Outgoing) -> str:
        """Show one message; its text is rendered from Markdown."""
        from channels.whatsapp.sending import send

        if self._client is None:
            raise SendDelayed(self.trouble, OFFLINE_PAUSE)
        return await send(self._client, message, self._quotes.get(message.reply_to or "", ""))

    async def typing(self, address: Address) -> None:
        """Lasts some ten seconds."""
        from neonize.exc import NeonizeError
        from neonize.utils.enum import ChatPresence, ChatPresenceMedia

        from channels.whatsapp.sending import to_jid

        if self._client is not None:
            composing, text = ChatPresence.CHAT_PRESENCE_COMPOSING, ChatPresenceMedia.CHAT_PRESENCE_MEDIA_TEXT
            with suppress(NeonizeError):
                await self._client.send_chat_presence(to_jid(address.chat), composing, text)

    async def draft(self, address: Address, draft: int, text: str) -> None:
        """WhatsApp has no drafts."""

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        """WhatsApp shows typing instead."""

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """At most 64 MB."""
        from channels.whatsapp.sending import fetch

        if self._client is None:
            raise FetchDelayed("WhatsApp is not connected")
        async for piece in fetch(self._client, attachment):
            yield piece

    def login(self) -> Login:
        """How it stands now. To look is to ask: codes are fetched as long as somebody looks."""
        told = self._pairing.login()
        self._pairing.ask()
        return told

    async def request_code(self, phone: str) -> str:
        """A code of eight letters and digits, good for less than three minutes."""
        told = self.login()
        if told.state == "connected":
            raise OwnerMustAct("WhatsApp is already linked; `supaclaw channel logout whatsapp` unlinks it")
        if self._link is None:
            raise OwnerMustAct(told.problem or "WhatsApp is not open yet; try again")
        return await self._link.request_code("".join(filter(str.isdecimal, phone)))

    async def logout(self) -> None:
        """Unlink this device; messages that were not accepted yet are still handed over."""
        if self._link is None or self._client is None:
            raise OwnerMustAct("WhatsApp is not connected; unlink the device on the phone: Settings > Linked devices")
        await self._link.logout()

    async def close(self) -> None:
        """End the session; what lies on disk stays there."""
        if self._link is not None:
            await self._link.close()
        self._link = None
        self._store.close()

    @property
    def _client(self) -> "NewAClient | None":
        return self._link.client if self._link is not None and self._pairing.connected.is_set() else None
