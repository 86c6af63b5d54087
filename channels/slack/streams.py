"""Answers that grow before people's eyes, in threads; the finished answer takes the place of what grew."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from channels.slack.client import BRIEF_SECONDS, Block, Client, metadata
from channels.slack.errors import Refused
from channels.slack.kept import Kept, Threads, put_newest
from channels.slack.markup import defused
from channels.slack.payloads import Payload, Posted
from gateway.domain.channels.platform import PlatformError, TooFast, Unanswered
from gateway.domain.conversation.inbound import Address
from gateway.domain.errors import TryAgainLater


@dataclass(slots=True)
class _Stream:
    """One growing message: `shown` so far, of which `before` is what earlier tries said.

    It is `growing` until Slack refuses more of it; it is `sure` while every answer of Slack's arrived.
    """

    sure: bool
    turn: int = 0
    ts: str | None = None
    shown: str = ""
    before: str = ""
    growing: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def missing(self, turn: int, text: str) -> str:
        """What to append so that `text` is seen; what was shown cannot be unsaid, so other text comes below it.

        Slack takes no more than 12,000 characters in one piece.
        """
        if turn != self.turn or not (self.before + text).startswith(self.shown):
            self.turn, self.before = turn, f"{self.shown}\n\n" if self.shown else ""
        return (self.before + text)[len(self.shown) : 12_000]


class Streams:
    """`kept` knows in which threads an unfinished message may stand, and since when: it outlives a crash."""

    def __init__(self, client: Client, threads: Threads, kept: Kept) -> None:
        self._client = client
        self._threads = threads
        self._kept = kept
        self._live: dict[Address, _Stream] = {}
        self._pause_until = 0.0

    async def grow(self, at: Address, turn: int, text: str) -> bool:
        """Show as much of the answer as there is; False if Slack takes no more of it, for now or for good.

        In a channel it grows for one person only, so that one must be known.
        """
        watched = at.thread and (at.chat.startswith("D") or self._threads.reader(at))
        if not watched or time.monotonic() < self._pause_until:
            return False
        stream = self._live.get(at) or _Stream(sure=self._kept.get(_name(at)) is None)
        put_newest(self._live, at, stream)
        async with stream.lock:
            missing = stream.missing(turn, defused(text))
            if not stream.growing or not missing.strip():
                return stream.growing
            try:
                await self._append(at, stream, missing)
                stream.shown += missing
            except TooFast as error:
                self._pause_until = time.monotonic() + (error.retry_after or 1.0)
                return False
            except Unanswered:
                stream.growing = stream.sure = False
            except asyncio.CancelledError:
                stream.growing = stream.sure = False
                raise
            except Refused:
                stream.growing = False
            except (PlatformError, TryAgainLater):
                return False
            return stream.growing

    async def finish(self, at: Address, markdown: str, rendered: str, key: str, blocks: Sequence[Block]) -> str | None:
        """Make the finished answer of what grew there, and its only trace; None when nothing did.

        Only the rest is added where the answer goes on from what is shown, else the text is replaced.
        """
        since = self._kept.get(_name(at))
        if since is None:
            self._live.pop(at, None)
            return None
        stream, final = self._live.get(at) or _Stream(sure=False), defused(markdown)
        async with stream.lock:
            ts = await self._one_of(at, stream, since)
            if ts is not None:
                goes_on = stream.sure and stream.growing and not blocks and final.startswith(stream.shown)
                if not (goes_on and await self._end(at, ts, final[len(stream.shown) :], key)):
                    ts = await self._replace(at, ts, rendered, key, blocks)
        await self.forget(at)
        return ts

    def shows(self, at: Address) -> bool:
        """Whether something grows there."""
        return at in self._live

    async def forget(self, at: Address) -> None:
        """The answer is there."""
        self._live.pop(at, None)
        await self._kept.drop(_name(at))

    async def _append(self, at: Address, stream: _Stream, missing: str) -> None:
        web, reader = self._client.web, self._threads.reader(at) or None
        if stream.ts is not None:
            request = web.chat_appendStream(channel=at.chat, ts=stream.ts, markdown_text=missing)
            await self._client.call(request, Payload, BRIEF_SECONDS)
            return
        if self._kept.get(_name(at)) is None:
            await self._kept.put(_name(at), self._threads.newest(at))
        request = web.chat_startStream(
            channel=at.chat,
            thread_ts=at.thread,
            markdown_text=missing,
            recipient_team_id=at.account if reader else None,
            recipient_user_id=reader,
        )
        stream.ts = (await self._client.call(request, Posted, BRIEF_SECONDS)).ts

    async def _one_of(self, at: Address, stream: _Stream, since: str) -> str | None:
        """The message that is to become the answer; others that were never finished are taken away."""
        if stream.sure:
            return stream.ts
        left = await self._client.unfinished(at, since)
        for ts in left[:-1]:
            with suppress(Refused):
                await self._client.delete(at, ts)
        return left[-1] if left else None

    async def _end(self, at: Address, ts: str, rest: str, key: str) -> bool:
        """Whether the rest could be added."""
        request = self._client.web.chat_stopStream(
            channel=at.chat, ts=ts, markdown_text=rest or None, metadata=metadata(key)
        )
        with suppress(Refused):
            await self._client.call(request, Payload)
            return True
        return False

    async def _replace(self, at: Address, ts: str, text: str, key: str, blocks: Sequence[Block]) -> str | None:
        """None when the message is gone, or cannot become this answer and was taken away."""
        web = self._client.web
        with suppress(Refused):
            await self._client.call(web.chat_stopStream(channel=at.chat, ts=ts), Payload)
        # text alone takes away the blocks that streaming made
        request = web.chat_update(
            channel=at.chat, ts=ts, text=text, blocks=blocks or None, metadata=metadata(key), parse="none"
        )
        with suppress(Refused):
            await self._client.call(request, Posted)
            return ts
        with suppress(Refused):
            await self._client.delete(at, ts)
        return None


def _name(at: Address) -> str:
    return f"stream {at.chat} {at.thread}"
