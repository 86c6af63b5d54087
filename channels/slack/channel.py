"""Slack as a channel. An answer is shown once: before a retry, the channel looks for the earlier attempt."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from functools import partial
from importlib import import_module

from channels.slack.client import Block, Client, SlackRefused
from channels.slack.events import Intake
from channels.slack.facts import CachedFacts, Threads
from channels.slack.markup import to_mrkdwn
from channels.slack.reception import Reception, dispatch, listening_app
from channels.slack.sending import Files, Replies, Streams
from gateway.domain.channels.channel import Accept, Button, Capabilities, ChannelFacts, Drafts, Outgoing, SendDelayed
from gateway.domain.channels.platform import Logger, PlatformError, Recovery, TokenRefused, send_error
from gateway.domain.conversation.inbound import Address, Attachment
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.domain.text.splitting import split


def preload() -> None:
    """Import the SDK. It takes 0.2 s, so call it in a thread; repeated calls do nothing."""
    import_module("slack_sdk.web.async_client")


@dataclass(eq=False, repr=False)
class Slack:
    """One app in one workspace; call `open` first."""

    name = "slack"
    capabilities = Capabilities(
        max_text=4000,  # Slack's advice; it cuts at 40,000
        drafts=Drafts.THREADS,
        typing=True,
        idempotent_send=True,
        reactions=True,
        buttons=True,
        max_file=1_000_000_000,
        silence=90.0,
    )

    client: Client
    _: KW_ONLY
    ping_interval: float
    commands: Set[str]
    log: Logger
    facts: ChannelFacts
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._facts = CachedFacts(self.facts, self.log)
        self._threads = Threads(self._facts)
        self._streams = Streams(self.client, self._threads, self._facts)
        self._files = Files(self.client, self._facts)
        self._replies = Replies(self._files, self._facts, self.client.bot_token)
        self._reception: Reception | None = None
        self._reconnecting = self._recovery()

    @property
    def heard_at(self) -> float | None:
        """The monotonic time at which Slack last sent anything to the receiving side; None before it receives."""
        return None if self._reception is None else self._reception.heard_at

    @property
    def trouble(self) -> str:
        """The last refusal by Slack, or since when it can't be reached; "" while it works."""
        return self._reconnecting.trouble

    async def open(self) -> None:
        """Import the SDK and Bolt, and load the facts; no request is made before `receive`, since Slack may be down."""
        await asyncio.to_thread(preload)
        await asyncio.to_thread(import_module, "slack_bolt.async_app")
        await self._facts.load()

    async def probe(self) -> str:
        """The app's name, by auth.test; also tries the app token, without opening a socket."""
        await asyncio.to_thread(preload)
        try:
            account = await self.client.account()
            await self.client.socket_url()
        except TokenRefused as error:
            raise OwnerMustAct(str(error)) from error
        return f"@{account.user}"

    async def receive(self, accept: Accept) -> None:
        """Receive over one websocket after another, until cancelled."""
        intake = Intake(self.client, self._threads, self.commands, accept)
        app = listening_app(self.client, intake, self._replies, self.commands)
        self._reception = Reception(self.client, self._reconnecting, self.log, self.ping_interval)
        await self._reception.run(partial(dispatch, app, self._recovery(), self.log))

    def _recovery(self) -> Recovery:
        return Recovery(self.name, self.log, self.pause, first_pause=0.5)

    async def send(self, message: Outgoing) -> str:
        """Send one message or file; its text is rendered from Markdown."""
        try:
            sent = await self._send(message)
        except TryAgainLater as error:
            raise SendDelayed(str(error)) from error
        except PlatformError as error:
            if isinstance(error, SlackRefused) and not error.final and message.file is None:
                raise SendDelayed(str(error)) from error
            raise send_error(error) from error
        await self._threads.spoke(message.address)
        return sent

    async def _send(self, message: Outgoing) -> str:
        at, key = message.address, message.key
        text = await asyncio.to_thread(to_mrkdwn, message.text)
        if message.file is not None:
            return await self._files.send(message, message.file, text)
        if message.again and (found := await self.client.find(at, key)):
            await self._streams.forget(at)
            return found
        blocks = tuple(_blocks(text, message.buttons)) if message.buttons else ()
        grown = await self._streams.finish(at, message.text, text, key, blocks)
        try:
            return grown or await self.client.post(at, text, key, blocks)
        except SlackRefused as refused:
            await self._replies.answer_by_url(refused, at, text, blocks)
            return key

    async def typing(self, address: Address) -> None:
        """Show a status below a thread until the next message there, for two minutes at most."""
        if address.thread and not self._streams.shows(address):
            set_status = self.client.web.assistant_threads_setStatus
            await self.client.attempt(
                set_status(channel_id=address.chat, thread_ts=address.thread, status="is thinking…")
            )

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        """Add 👀 to the message, or remove it."""
        ts = platform_id.partition(":")[0]
        if ts.replace(".", "").isdecimal():
            react = self.client.web.reactions_add if seen else self.client.web.reactions_remove
            await self.client.attempt(react(channel=address.chat, name="eyes", timestamp=ts))

    async def draft(self, address: Address, draft: int, text: str) -> bool:
        """Show more of the answer, in a thread; False if Slack accepts no more of it."""
        return await self._streams.grow(address, draft, text)

    def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield the bytes of a file; raises `FetchFailed` or `FetchDelayed`."""
        return self._files.fetch(attachment)

    async def close(self) -> None:
        """Close the HTTP session; a later call opens another."""
        await self.client.close()


def _blocks(text: str, buttons: Sequence[Button]) -> Iterator[Block]:
    for part in split(text, 3000):
        yield {"type": "section", "text": {"type": "mrkdwn", "text": part}}
    yield {"type": "actions", "elements": [_element(*each) for each in enumerate(buttons[:25])]}


def _element(number: int, button: Button) -> Block:
    label = {"type": "plain_text", "text": button.label[:75] or button.value}
    return {"type": "button", "action_id": f"supaclaw-{number}", "text": label, "value": button.value}
