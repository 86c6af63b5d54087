"""Remembering and forgetting: the rules that hold on every way, tool, command and program."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gateway.domain.ids import MemoryId, PrincipalId
from gateway.domain.memory.memories import (
    ALL_MEMORIES,
    AlreadyRemembered,
    Category,
    Kind,
    Memory,
    MemoryAccess,
    NewMemory,
    content_hash,
)
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line
from gateway.store.connection.pool import Connection
from gateway.store.memory import memories

LONGEST_TEXT = 4_000
MOST_TAGS, LONGEST_TAG = 20, 40
MOST_IDS = 2**63 - 1
"""More than there can be; people and models may well name a greater number."""


class MemoryRefused(Exception):
    """What cannot be done; the text says what would work."""


class UnknownMemory(MemoryRefused):
    """There is no such row, or none for who asks."""


@dataclass(frozen=True, slots=True)
class Remembering:
    """The memories of one principal, as far as `reach` goes, in the caller's transaction."""

    tx: Connection
    principal: PrincipalId
    reach: MemoryAccess = ALL_MEMORIES
    clean: Callable[[str], str] = str
    """Takes live secrets out of what is to be remembered."""

    async def remember(self, new: NewMemory) -> tuple[Memory, bool]:
        """The memory, and whether it is new: the same text again returns the one that is there, seen once more.

        What it supersedes stays, with a reference to it, and is found only when asked for. Raises `Refused`.
        """
        new = self.reach.written(self._checked(new))
        old = None if new.supersedes is None else await self._own(new.supersedes)
        memory, is_new = await memories.add(self.tx, self.principal, replace(new, supersedes=None))
        if old is not None and old.id != memory.id and not await self._replaced(old, memory, new.label):
            raise MemoryRefused(f"Memory {old.id} cannot be replaced by this: it is no fact in force, or trusted more.")
        return memory, is_new

    async def forget(self, id: MemoryId) -> Memory:
        """What it was; it can be restored. Raises `Refused`."""
        memory = await self._own(id)
        await memories.forget(self.tx, self.principal, id)
        return memory

    async def restore(self, id: MemoryId) -> Memory:
        """Undo a `forget`; raises `Refused`."""
        forgotten = await memories.get(self.tx, self.principal, id) if id <= MOST_IDS else None
        if forgotten is None or not self.reach.changes(forgotten):
            raise UnknownMemory(f"There is no forgotten memory {id}.")
        try:
            done = await memories.restore(self.tx, self.principal, id)
        except AlreadyRemembered as known:
            raise MemoryRefused(f"{known}.") from known
        if not done:
            raise UnknownMemory(f"There is no forgotten memory {id}.")
        return await self.get(id)

    async def edit(
        self,
        id: MemoryId,
        *,
        text: str | None = None,
        category: Category | None = None,
        importance: float | None = None,
        tags: tuple[str, ...] | None = None,
        pinned: bool | None = None,
    ) -> Memory:
        """Change what is given; raises `Refused`."""
        old = await self._own(id)
        if old.kind not in (Kind.MEMORY, Kind.SUMMARY) or not self.reach.rewords(old):
            raise MemoryRefused(f"Memory {id} cannot be changed: it is no memory or summary, or not yours alone.")
        new = self._checked(
            NewMemory(
                old.text if text is None else text,
                importance=old.importance if importance is None else importance,
                tags=old.tags if tags is None else tags,
            )
        )
        try:
            changed = await memories.edit(
                self.tx,
                self.principal,
                id,
                text=None if text is None else new.text,
                category=category,
                importance=importance,
                tags=None if tags is None else new.tags,
                pinned=pinned,
            )
        except AlreadyRemembered as known:
            raise MemoryRefused(f"{known}.") from known
        return changed or old

    async def correct(self, id: MemoryId, new: NewMemory) -> Memory:
        """With other words a memory is replaced by a new one, which is trusted as it was; else it is edited."""
        old = await self._own(id)
        if old.kind is not Kind.MEMORY or content_hash(new.text) == content_hash(old.text):
            text = None if new.text == old.text else new.text
            return await self.edit(id, text=text, category=new.category, importance=new.importance, tags=new.tags)
        return await self._instead(replace(new, pinned=old.pinned), [old])

    async def merge(self, ids: Sequence[MemoryId], new: NewMemory) -> Memory:
        """One memory instead of several, which are trusted alike; raises `Refused`."""
        rows = [await self._own(id) for id in dict.fromkeys(ids)]
        mixed = len({(row.kind, row.label, row.agent) for row in rows}) > 1 or rows[0].kind is not Kind.MEMORY
        if len(rows) < 2 or mixed:
            raise MemoryRefused("Choose two or more memories of the same agent, all verified or all not.")
        return await self._instead(replace(new, pinned=any(row.pinned for row in rows)), rows)

    async def _instead(self, new: NewMemory, rows: Sequence[Memory]) -> Memory:
        """In the place of these, which stay behind it: from the same messages, and as trusted as they are."""
        sources = [each.message_id for row in rows for each in await memories.sources(self.tx, self.principal, row.id)]
        new = replace(
            new,
            label=rows[0].label,
            agent=rows[0].agent,
            sources=tuple(sources),
            event_at=max((row.event_at for row in rows if row.event_at), default=None),
        )
        made, is_new = await self.remember(new)
        for row in rows:
            if row.id != made.id and not await self._replaced(row, made, new.label):
                raise MemoryRefused(f"Memory {row.id} cannot be replaced: it was replaced already.")
        if is_new or made.label < new.label:  # what is trusted more takes nothing from a form about what is not
            return made
        return await self.edit(
            made.id, category=new.category, importance=new.importance, tags=new.tags, pinned=new.pinned
        )

    async def pin(self, id: MemoryId, *, pinned: bool) -> Memory:
        """Told in every new session, or no more; raises `Refused`."""
        memory = await self.get(id)
        if memory.kind not in (Kind.MEMORY, Kind.SUMMARY):
            raise MemoryRefused(
                f"{id} cannot be pinned: it is something that was said or read. /remember keeps what it says."
            )
        return await memories.edit(self.tx, self.principal, id, pinned=pinned) or memory

    async def get(self, id: MemoryId) -> Memory:
        """By its number; raises `Refused` if there is none that is remembered."""
        memory = await memories.get(self.tx, self.principal, id) if id <= MOST_IDS else None
        if memory is None or memory.forgotten_at is not None or not self.reach.shows(memory):
            raise UnknownMemory(f"There is no memory {id}; search for it, and take the id that is found.")
        return memory

    async def _own(self, id: MemoryId) -> Memory:
        """One that may be changed; raises `Refused`."""
        memory = await self.get(id)
        if not self.reach.changes(memory):
            raise MemoryRefused(f"Memory {id} is the owner's; you can read it, not change it.")
        return memory

    async def _replaced(self, old: Memory, new: Memory, label: Label) -> bool:
        return old.superseded_by == new.id or await memories.supersede(self.tx, self.principal, old.id, new.id, label)

    def _checked(self, new: NewMemory) -> NewMemory:
        return checked(replace(new, text=self.clean(new.text), tags=tuple(map(self.clean, new.tags))))


def checked(new: NewMemory) -> NewMemory:
    """As it is stored; raises `Refused` for what nobody could mean."""
    text = new.text.strip()
    if not text:
        raise MemoryRefused("There is nothing to remember: say what, in a sentence that makes sense on its own.")
    if len(text) > LONGEST_TEXT:
        raise MemoryRefused(
            f"A memory has at most {LONGEST_TEXT:,} characters; write the rest into a file and say where."
        )
    if not (math.isfinite(new.importance) and 0 <= new.importance <= 1):
        raise MemoryRefused(f"The importance is a number from 0 to 1, not {new.importance:g}.")
    tags = dict.fromkeys(filter(None, (one_line(tag, LONGEST_TAG).casefold() for tag in new.tags)))
    if len(tags) > MOST_TAGS:
        raise MemoryRefused(f"A memory has at most {MOST_TAGS} tags.")
    return replace(new, text=text, tags=tuple(tags))
