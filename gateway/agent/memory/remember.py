"""Remembering and forgetting: the rules for tools, commands and programs alike."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from gateway.domain.conversation.tools import Change
from gateway.domain.ids import MemoryId, PrincipalId, SessionId
from gateway.domain.memory.memories import (
    Category,
    Kind,
    Memory,
    MemoryAccess,
    MemoryFilter,
    MemoryHit,
    MemoryRefused,
    NewMemory,
    content_hash,
)
from gateway.domain.principals import Label, Role
from gateway.domain.text.texts import one_line
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import denies, forgotten_too, is_telling, memory_line, what_stays, with_digits
from gateway.store.connection.pool import Connection
from gateway.store.memory import indexing, memories, search
from gateway.store.memory.memories import MemorySource

FORGET = "forget"
"""The tool that forgets, whose call a person's own command also asks for."""
LONGEST_TEXT = 4_000
MOST_TAGS, LONGEST_TAG = 20, 40
NEAREST = 20
"""Memories that a new one may say are over."""
SOURCE_STATES, OTHER_STATES, NUMBER_STATES = 0.4, 0.7, 0.1
"""The share of a memory's words with which a message it was learned from, any other row, or one with its long numbers
states it."""
MOST_IDS = 2**63 - 1
"""The greatest id that the database can have; people and models may name a greater one."""


class UnknownMemory(MemoryRefused):
    """There is no such memory within reach."""


@dataclass(frozen=True, slots=True)
class Forgetting:
    """A memory to forget, the rows that state it or were replaced by it and go with it, and the files that stay."""

    memory: Memory
    stating: Sequence[Memory]
    files: Sequence[str]

    @property
    def also(self) -> str:
        """The rows that are hidden with it, for people, below a line about the memory; "" if there are none."""
        return forgotten_too(self.stating)

    def stays(self, role: Role) -> str:
        """The places where it stays, and the step that removes it there, which the owner has."""
        return what_stays(self.memory.id, self.files, erasable=role is Role.OWNER)

    def base(self, ongoing: SessionId | None = None) -> str:
        """A hash of what is hidden, without what an `ongoing` conversation says, which may repeat it any time."""
        rows = sorted(row.id for row in self.stating if ongoing is None or row.session_id != ongoing)
        return hashlib.sha256(f"{rows} {self.memory.text}".encode()).hexdigest()

    def change(self, ongoing: SessionId, role: Role) -> Change:
        """The call as its person sees it; their yes holds for what this conversation says of it until then, too."""
        later = "\nand what this conversation says of it until you answer." if self.stating else ""
        preview = f"forget {self.memory.id}: {memory_line(self.memory)}{self.also}{later}\n{self.stays(role)}"
        return Change(preview, self.base(ongoing), quoted=self.memory.label)


class EditedFields(TypedDict, total=False):
    """Fields of a memory to change; None counts as not given."""

    text: str | None
    category: Category | None
    importance: float | None
    tags: tuple[str, ...] | None
    pinned: bool | None


@dataclass(frozen=True, slots=True)
class Remembering:
    """Changes the memories of one principal within `reach`, in the caller's transaction. Raises `MemoryRefused`."""

    tx: Connection
    principal: PrincipalId
    reach: MemoryAccess
    clean: Callable[[str], str]
    """Removes live secrets from texts before they are stored."""

    async def remember(self, new: NewMemory) -> tuple[Memory, bool]:
        """Store a memory; returns it, and whether it is new: a known text returns the stored memory, seen once more.

        A superseded memory stays, with a reference to its successor, and is found only on request.
        """
        new = self.reach.written(self._checked(new))
        old = await self._denied(new) if new.supersedes is None else await self._own(new.supersedes)
        memory, is_new = await memories.add(self.tx, self.principal, replace(new, supersedes=None))
        if old is not None and old.id != memory.id and not await self._replaced(old, memory, new.label):
            raise MemoryRefused(f"Memory {old.id} cannot be replaced by this: it is no fact in force, or trusted more.")
        return memory, is_new

    async def _denied(self, new: NewMemory) -> Memory | None:
        """The memory with the same trust that a new one says is over, in words that include all of its own."""
        if not denies(new.text):
            return None
        which = MemoryFilter(kinds=(Kind.MEMORY,), agent=new.agent, at_most=new.label)
        words = lexemes(new.text)
        found = await search.hybrid(self.tx, self.principal, words, which, NEAREST)
        near = (hit.memory for hit in found.hits if hit.memory.label is new.label)
        return next((old for old in near if set(lexemes(old.text)) < set(words) and not denies(old.text)), None)

    async def forget_agreed(self, id: MemoryId, agreed: str | None = None) -> tuple[Forgetting, bool]:
        """`forget`, and whether it was done: more than the memory itself goes only with a yes to this base."""
        going = await self.forgettable(id)
        agrees = not going.stating or agreed == going.base()
        return (await self.forget(id) if agrees else going), agrees

    async def forget(self, id: MemoryId) -> Forgetting:
        """Forget a memory and what states it; they can be restored together."""
        going = await self.forgettable(id)
        for row in (going.memory, *going.stating):
            await memories.forget(self.tx, self.principal, row.id)
        return going

    async def forgettable(self, id: MemoryId) -> Forgetting:
        """A memory that may be forgotten, with what states it, too."""
        memory = await self._own(id)
        if memory.kind is not Kind.MEMORY:
            return Forgetting(memory, (), ())
        await indexing.index_turns(self.tx, self.principal, indexing.NEWEST)
        replaced = await memories.replaced_by(self.tx, self.principal, id)
        stating = {row.id: row for each in (memory, *replaced) for row in (each, *await self._stating(each))}
        said = [row for row in stating.values() if row.path is None and row.label is memory.label and row.id != id]
        return Forgetting(memory, said, sorted({row.path for row in stating.values() if row.path is not None}))

    async def _stating(self, memory: Memory) -> list[Memory]:
        """The rows of any kind that state a memory, which is not necessarily in force."""
        words, which = lexemes(memory.text), MemoryFilter(agent=memory.agent, at_most=memory.label)
        found = await search.hybrid(self.tx, self.principal, words, which, search.MAX_HITS)
        learned = {source.message_id for source in await memories.sources(self.tx, self.principal, memory.id)}
        exact = with_digits(words)
        tells_all = any(map(is_telling, exact))

        def states(hit: MemoryHit) -> bool:
            least = SOURCE_STATES if hit.memory.message_id in learned else OTHER_STATES
            least = NUMBER_STATES if tells_all else least
            return hit.words >= least and exact <= set(lexemes(hit.memory.text))

        return [hit.memory for hit in found.hits if states(hit)]

    async def restore(self, id: MemoryId) -> Memory:
        """Undo a `forget`."""
        forgotten = await memories.get(self.tx, self.principal, id) if id <= MOST_IDS else None
        if forgotten is None or not self.reach.changes(forgotten):
            raise UnknownMemory(f"There is no forgotten memory {id}.")
        if not await memories.restore(self.tx, self.principal, id):
            raise UnknownMemory(f"There is no forgotten memory {id}.")
        return await self.get(id)

    async def edit(self, id: MemoryId, **fields: Unpack[EditedFields]) -> Memory:
        """Change the given fields."""
        old = await self._own(id)
        if old.kind not in (Kind.MEMORY, Kind.SUMMARY) or not self.reach.rewords(old):
            raise MemoryRefused(f"Memory {id} cannot be changed: it is no memory or summary, or not yours alone.")
        text, importance, tags = fields.get("text"), fields.get("importance"), fields.get("tags")
        importance = old.importance if importance is None else importance
        new = self._checked(NewMemory(old.text if text is None else text, importance=importance, tags=tags or ()))
        fields["text"], fields["tags"] = None if text is None else new.text, None if tags is None else new.tags
        return await memories.edit(self.tx, self.principal, id, **fields) or old

    async def correct(self, id: MemoryId, new: NewMemory) -> Memory:
        """Replace a memory by one with another text and the same label; with the same text, edit it."""
        old = await self._own(id)
        if old.kind is not Kind.MEMORY or content_hash(new.text) == content_hash(old.text):
            text = None if new.text == old.text else new.text
            return await self.edit(id, text=text, category=new.category, importance=new.importance, tags=new.tags)
        return await self._replace_all(replace(new, pinned=old.pinned), [old])

    async def merge(self, ids: Sequence[MemoryId], new: NewMemory) -> Memory:
        """Replace several memories with the same label by one."""
        rows = [await self._own(id) for id in dict.fromkeys(ids)]
        mixed = len({(row.kind, row.label, row.agent) for row in rows}) > 1 or rows[0].kind is not Kind.MEMORY
        if len(rows) < 2 or mixed:
            raise MemoryRefused("Choose two or more memories of the same agent, all verified or all not.")
        return await self._replace_all(replace(new, pinned=any(row.pinned for row in rows)), rows)

    async def _replace_all(self, new: NewMemory, rows: Sequence[Memory]) -> Memory:
        """Supersede `rows` by a memory with their sources and their label."""
        sources = [each.message_id for row in rows for each in await memories.sources(self.tx, self.principal, row.id)]
        event_at = max((row.event_at for row in rows if row.event_at), default=None)
        new = replace(new, label=rows[0].label, agent=rows[0].agent, sources=tuple(sources), event_at=event_at)
        made, is_new = await self.remember(new)
        for row in rows:
            if row.id != made.id and not await self._replaced(row, made, new.label):
                raise MemoryRefused(f"Memory {row.id} cannot be replaced: it was replaced already.")
        if is_new or made.label < new.label:  # a more trusted memory takes no fields from a less trusted one
            return made
        return await self.edit(
            made.id, category=new.category, importance=new.importance, tags=new.tags, pinned=new.pinned
        )

    async def pin(self, id: MemoryId, *, pinned: bool) -> Memory:
        """Pin a memory, so that every new session starts with it, or unpin it."""
        memory = await self.get(id)
        if memory.kind not in (Kind.MEMORY, Kind.SUMMARY):
            raise MemoryRefused(f"{id} cannot be pinned: it is something that was said or read; remember what it says.")
        return await memories.edit(self.tx, self.principal, id, pinned=pinned) or memory

    async def get(self, id: MemoryId) -> Memory:
        """The memory with this id, unless it was forgotten; raises `UnknownMemory`."""
        memory = await memories.get(self.tx, self.principal, id) if id <= MOST_IDS else None
        if memory is None or memory.forgotten_at is not None or not self.reach.shows(memory):
            raise UnknownMemory(f"There is no memory {id}; lists and searches show the ids.")
        return memory

    async def learned(self, id: MemoryId) -> tuple[Memory, Sequence[MemorySource]]:
        """`memories.learned` for a memory; no sources of one that is not the caller's."""
        memory = await self.get(id)
        return await memories.learned(self.tx, self.principal, memory) if self.reach.changes(memory) else (memory, ())

    async def _own(self, id: MemoryId) -> Memory:
        """A memory that may be changed here."""
        memory = await self.get(id)
        if not self.reach.changes(memory):
            raise MemoryRefused(f"Memory {id} is the owner's; you can read it, not change it.")
        return memory

    async def _replaced(self, old: Memory, new: Memory, label: Label) -> bool:
        return old.superseded_by == new.id or await memories.supersede(self.tx, self.principal, old.id, new.id, label)

    def _checked(self, new: NewMemory) -> NewMemory:
        return checked(replace(new, text=self.clean(new.text), tags=tuple(map(self.clean, new.tags))))


def checked(new: NewMemory) -> NewMemory:
    """The memory as it is stored; raises `MemoryRefused` for invalid fields."""
    text = new.text.strip()
    if not text:
        raise MemoryRefused("There is nothing to remember: say what, in a sentence that makes sense on its own.")
    if len(text) > LONGEST_TEXT:
        message = f"A memory has at most {LONGEST_TEXT:,} characters; write the rest into a file and say where."
        raise MemoryRefused(message)
    if not (math.isfinite(new.importance) and 0 <= new.importance <= 1):
        raise MemoryRefused(f"The importance is a number from 0 to 1, not {new.importance:g}.")
    tags = dict.fromkeys(filter(None, (one_line(tag, LONGEST_TAG).casefold() for tag in new.tags)))
    if len(tags) > MOST_TAGS:
        raise MemoryRefused(f"A memory has at most {MOST_TAGS} tags.")
    return replace(new, text=text, tags=tuple(tags))
