"""What outlives a restart, on any machine: the threads that we talk in, and what is half sent."""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from gateway.domain.channels.channel import ChannelFacts
from gateway.domain.channels.platform import Logger
from gateway.domain.conversation.inbound import Address
from gateway.domain.errors import TryAgainLater
from gateway.domain.text.texts import storable

MAX_FACTS = 2000

Name = TypeVar("Name")
Value = TypeVar("Value")


def put_newest(into: dict[Name, Value], name: Name, value: Value, most: int = MAX_FACTS) -> list[Name]:
    """Put it last, and let what was put longest ago make room; returns the names of that."""
    into.pop(name, None)
    into[name] = value
    gone = list(into)[: max(0, len(into) - most)]
    for each in gone:
        del into[each]
    return gone


class CachedFacts:
    """Short facts in the database, all of them in memory, too. What couldn't be stored is stored with the next one."""

    def __init__(self, facts: ChannelFacts, log: Logger) -> None:
        self._facts = facts
        self._logger = log
        self._entries: dict[str, str] = {}
        self._unsaved: dict[str, str | None] = {}
        self._loaded = False
        self._saving = asyncio.Lock()

    async def load(self) -> None:
        """Read them, once; raises `TryAgainLater`."""
        if not self._loaded:
            self._entries = dict(await self._facts.load())
            self._loaded = True

    async def add(self, entries: Mapping[str, str]) -> None:
        """Store those whose names are new, all or none; raises `TryAgainLater`."""
        new = {name: value for name, value in entries.items() if name not in self._entries}
        kept = dict(list((new | self._entries).items())[-MAX_FACTS:])
        await self._facts.save({name: value for name, value in new.items() if name in kept})
        self._entries = kept

    def get(self, name: str) -> str | None:
        """What was kept under the name."""
        return self._entries.get(name)

    async def put(self, name: str, value: str) -> None:
        """Keep it before something is done that must not be forgotten; raises `TryAgainLater`, and nothing is kept."""
        async with self._saving:
            await self._save({name: value})
        self._put(name, value)

    async def note(self, name: str, value: str) -> None:
        """Keep it, if only until a restart for now."""
        self._put(name, value)
        self._unsaved = self._unsaved | {name: value}
        await self._try_to_save()

    async def drop(self, name: str) -> None:
        """Forget it, if only until a restart for now."""
        if self._entries.pop(name, None) is not None:
            self._unsaved = self._unsaved | {name: None}
            await self._try_to_save()

    def _put(self, name: str, value: str) -> None:
        gone = put_newest(self._entries, name, value)
        self._unsaved = self._unsaved | dict.fromkeys(gone)

    async def _try_to_save(self) -> None:
        async with self._saving:
            try:
                await self._save({})
            except TryAgainLater as error:
                self._logger.warning("slack.not_kept", why=str(error))

    async def _save(self, more: dict[str, str | None]) -> None:
        before = self._unsaved
        if changes := before | more:
            await self._facts.save(changes)
        self._unsaved = {
            name: value
            for name, value in self._unsaved.items()
            if name not in more and (name not in before or before[name] != value)
        }


def facts_in_file(path: Path) -> Mapping[str, str]:
    """What older gateways kept in a file; one that can't be read is an empty one. Blocks."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_text("utf-8"))
        if isinstance(found, dict):
            return {
                str(name): str(value) for name, value in found.items() if storable(text := f"{name}{value}") == text
            }
    return {}


class Threads:
    """The threads in which people and we talk: who wrote there last, and when."""

    def __init__(self, kept: CachedFacts) -> None:
        self._kept = kept

    def __contains__(self, at: Address) -> bool:
        return self._kept.get(_thread_fact(at)) is not None

    async def heard(self, at: Address, user: str, ts: str) -> None:
        """A person said something that is meant for us."""
        if at.thread:
            await self._kept.note(_thread_fact(at), f"{ts} {user}")

    async def spoke(self, at: Address) -> None:
        """We said something."""
        if at.thread and at not in self:
            await self._kept.note(_thread_fact(at), "")

    def reader(self, at: Address) -> str:
        """Who wrote there last, "" when that is not known."""
        return (self._kept.get(_thread_fact(at)) or "").partition(" ")[2]

    def newest(self, at: Address) -> str:
        """When that was; what is not known was two minutes ago, for clocks differ. What we say now comes after."""
        return (self._kept.get(_thread_fact(at)) or "").partition(" ")[0] or f"{time.time() - 120:.6f}"


def _thread_fact(at: Address) -> str:
    return f"thread {at.chat} {at.thread}"
