"""WhatsApp as a channel."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from channels.whatsapp.pairing import LINK_TIMEOUTS, LinkTimeouts, Pairing
from channels.whatsapp.sdk import MAX_FILE, OFFLINE_PAUSE, preload
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
"""Seconds for which a healthy connection can be silent: until a ping and its answer after up to 75 s, with reserve."""
MAX_QUOTES = 500
MAX_QUOTE_CHARS = 200


class WhatsApp:
    """One linked device; call `open` first. Without an account it waits for a login."""

    name = "whatsapp"
    capabilities = Capabilities(max_text=MAX_TEXT, typing=True, max_file=MAX_FILE, portable=False, silence=SILENCE)

    def __init__(self, *, store: Store, log: Logger, timeouts: LinkTimeouts = LINK_TIMEOUTS) -> None:
        self._store = store
        self._logger = log
        self._timeouts = timeouts
        self._pairing = Pairing(store, self._timeouts)
        self._quotes: dict[str, str] = {}
        self._link: Link | None = None

    async def open(self) -> None:
        """Import neonize, in a thread, and start to connect; raises `OwnerMustAct` if another process is linked."""
        try:
            self._store.open()
        except OwnerMustAct as error:
            self._pairing.reset(str(error))
            raise
        await asyncio.to_thread(preload)
        from channels.whatsapp.link import Link

        self._link = Link(self._store, self._pairing, self._logger, self._timeouts)

    @property
    def heard_at(self) -> float | None:
        """The monotonic time of WhatsApp's last sign of life; now while the channel makes no requests."""
        if self._link is None:
            return None
        return monotonic() if self._pairing.idle else self._link.heard_at

    @property
    def trouble(self) -> str:
        """Why no message can arrive; "" while connected. Unlike `login`, this requests no codes."""
        login = self._pairing.login()
        return "" if login.state == "connected" else ": ".join(filter(None, (login.state, login.problem)))

    async def receive(self, accept: Accept) -> None:
        """Hand over messages from the spool until cancelled; raises the error that ends the link."""
        from channels.whatsapp.messages import hand_over_spool

        async def accept_and_keep(batch: Sequence[Inbound]) -> None:
            """Keep the newest texts of groups, to quote them in replies."""
            self._quotes |= {said.platform_id: said.text[:MAX_QUOTE_CHARS] for said in batch if not said.private}
            while len(self._quotes) > MAX_QUOTES:
                del self._quotes[next(iter(self._quotes))]
            await accept(batch)

        assert self._link is not None
        intake = asyncio.create_task(hand_over_spool(self._link, accept_and_keep, self._logger))
        try:
            done, _ = await asyncio.wait({intake, self._link.running}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            intake.cancel()
            await asyncio.gather(intake, return_exceptions=True)

    async def send(self, message: Outgoing) -> str:
        """Send one message; its text is rendered from Markdown."""
        from channels.whatsapp.sending import send

        if self._client is None:
            raise SendDelayed(self.trouble, OFFLINE_PAUSE)
        timer = self._link.timers.get(message.address.chat) if self._link else None
        return await send(self._client, message, self._quotes.get(message.reply_to or "", ""), timer)

    async def typing(self, address: Address) -> None:
        """Show "typing" for about ten seconds."""
        from neonize.exc import NeonizeError
        from neonize.utils.enum import ChatPresence, ChatPresenceMedia

        from channels.whatsapp.sending import to_jid

        if self._client is not None:
            composing, text = ChatPresence.CHAT_PRESENCE_COMPOSING, ChatPresenceMedia.CHAT_PRESENCE_MEDIA_TEXT
            with suppress(NeonizeError):
                await self._client.send_chat_presence(to_jid(address.chat), composing, text)

    async def draft(self, address: Address, draft: int, text: str) -> None:
        """Do nothing: WhatsApp has no drafts."""

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        """Do nothing: WhatsApp shows "typing" instead."""

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield the bytes of a file of at most 64 MB; raises `FetchFailed` or `FetchDelayed`."""
        from channels.whatsapp.sending import fetch

        if self._client is None:
            raise FetchDelayed("WhatsApp is not connected")
        async for piece in fetch(self._client, attachment):
            yield piece

    def login(self) -> Login:
        """The state of the login. Calling this requests codes, for as long as it is repeated."""
        login = self._pairing.login()
        self._pairing.note_interest()
        return login

    async def request_code(self, phone: str) -> str:
        """Request a code of eight letters and digits, valid for less than three minutes; raises `OwnerMustAct`."""
        login = self.login()
        if login.state == "connected":
            raise OwnerMustAct("WhatsApp is already linked; `supaclaw channel logout whatsapp` unlinks it")
        if self._link is None:
            raise OwnerMustAct(login.problem or "WhatsApp is not open yet; try again")
        return await self._link.request_code("".join(filter(str.isdecimal, phone)))

    async def logout(self) -> None:
        """Unlink this device; messages in the spool are still handed over. Raises `OwnerMustAct`."""
        if self._link is None or self._client is None:
            raise OwnerMustAct("WhatsApp is not connected; unlink the device on the phone: Settings > Linked devices")
        await self._link.logout()

    async def close(self) -> None:
        """End the session; the spool stays on disk."""
        if self._link is not None:
            await self._link.close()
        self._link = None
        self._store.close()

    @property
    def _client(self) -> "NewAClient | None":
        return self._link.client if self._link is not None and self._pairing.connected.is_set() else None
