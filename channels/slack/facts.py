"""Facts that outlive a restart, on any machine: the threads that the agent talks in, and unfinished messages."""

import asyncio
import time

from gateway.domain.channels.channel import ChannelFacts
from gateway.domain.channels.platform import Logger
from gateway.domain.conversation.inbound import Address
from gateway.domain.errors import TryAgainLater

MAX_FACTS = 2000


class CachedFacts:
    """Short facts in the database, with a copy in memory. A failed write is repeated with the next one."""

    def __init__(self, facts: ChannelFacts, log: Logger) -> None:
        self._facts = facts
        self._logger = log
        self._entries: dict[str, str] = {}
        self._unsaved: dict[str, str | None] = {}
        self._loaded = False
        self._saving = asyncio.Lock()

    async def load(self) -> None:
        """Read the facts, once; raises `TryAgainLater`."""
        if not self._loaded:
            self._entries = dict(await self._facts.load())
            self._loaded = True

    def get(self, name: str) -> str | None:
        """The fact with this name, or None."""
        return self._entries.get(name)

    async def put(self, name: str, value: str) -> None:
        """Store a fact before an act that must not be repeated; raises `TryAgainLater` if it is not stored."""
        async with self._saving:
            await self._save({name: value})
        self._put(name, value)

    async def note(self, name: str, value: str) -> None:
        """Set a fact; if it can't be stored now, it is kept in memory until the next write."""
        self._put(name, value)
        await self._try_to_save({name: value})

    async def drop(self, name: str) -> None:
        """Drop a fact; if that can't be stored now, it is done in memory until the next write."""
        if self._entries.pop(name, None) is not None:
            await self._try_to_save({name: None})

    def _put(self, name: str, value: str) -> None:
        """Put a fact last and drop the oldest beyond the limit."""
        self._entries.pop(name, None)
        self._entries[name] = value
        for oldest in list(self._entries)[:-MAX_FACTS]:
            del self._entries[oldest]
            self._unsaved = self._unsaved | {oldest: None}

    async def _try_to_save(self, changes: dict[str, str | None]) -> None:
        self._unsaved = self._unsaved | changes
        async with self._saving:
            try:
                await self._save({})
            except TryAgainLater as error:
                self._logger.warning("slack.not_kept", why=str(error))

    async def _save(self, more: dict[str, str | None]) -> None:
        before = self._unsaved
        if changes := before | more:
            await self._facts.save(changes)
        newer = (item for item in self._unsaved.items() if item not in before.items())
        self._unsaved = {name: value for name, value in newer if name not in more}


class Threads:
    """The threads that the agent talks in: who wrote there last, and when."""

    def __init__(self, kept: CachedFacts) -> None:
        self._kept = kept

    def __contains__(self, at: Address) -> bool:
        return self._kept.get(_thread_fact(at)) is not None

    async def heard(self, at: Address, user: str, ts: str) -> None:
        """Note that a person wrote to the agent."""
        if at.thread:
            await self._kept.note(_thread_fact(at), f"{ts} {user}")

    async def spoke(self, at: Address) -> None:
        """Note that the agent wrote."""
        if at.thread and at not in self:
            await self._kept.note(_thread_fact(at), "")

    def reader(self, at: Address) -> str:
        """The person who wrote there last; "" if unknown."""
        return (self._kept.get(_thread_fact(at)) or "").partition(" ")[2]

    def newest(self, at: Address) -> str:
        """The timestamp of that message; if unknown, two minutes ago, since clocks differ."""
        return (self._kept.get(_thread_fact(at)) or "").partition(" ")[0] or f"{time.time() - 120:.6f}"


def _thread_fact(at: Address) -> str:
    return f"thread {at.chat} {at.thread}"
