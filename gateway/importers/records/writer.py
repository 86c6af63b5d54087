"""The writer: stores records in batches, each record once, and counts them."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TypeAlias

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import MemoryId, PrincipalId
from gateway.domain.memory.imports import (
    LEARNING,
    MAX_TEXT,
    ORIGIN,
    Damaged,
    ImportedMemory,
    ImportedMessage,
    ImportedSession,
    ImportedTask,
    Passed,
    Record,
)
from gateway.domain.memory.memories import NewMemory, content_hash
from gateway.domain.principals import Label
from gateway.domain.text.texts import one_line, storable
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import consolidation, memories
from gateway.store.transcript import imports
from gateway.store.transcript.imports import PASSPORT, ImportedRow
from gateway.store.work import schedules
from gateway.timetable.schedules import LONGEST_NAME, MAX_PROMPT, define

MAX_DAMAGED = 100
"""Damaged places that are listed; further ones are counted."""


@dataclass(slots=True)
class Tally:
    """Counts of the records that were stored, or would be in a dry run, and of those left out."""

    memories: int = 0
    sessions: int = 0
    messages: int = 0
    tasks: int = 0
    learnings: int = 0
    proposals: int = 0
    """Instructions, which wait for their person's yes."""
    known: int = 0
    """Imported before."""
    passed: Counter[str] = field(default_factory=Counter)
    """Left out on purpose, by reason."""
    damaged: list[Damaged] = field(default_factory=list)
    more_damaged: int = 0

    def damage(self, place: str, why: str) -> None:
        """Record something that can't be imported."""
        if len(self.damaged) < MAX_DAMAGED:
            self.damaged.append(Damaged(place, why))
        else:
            self.more_damaged += 1

    @property
    def found(self) -> bool:
        """Whether there was anything to import, new or not."""
        return bool(self.stored or self.known or self.passed)

    @property
    def stored(self) -> int:
        """The number of new memories, messages, tasks and learnings."""
        return self.memories + self.messages + self.tasks + self.learnings + self.proposals

    def add(self, other: "Tally") -> None:
        """Add the counts of a batch."""
        for name in ("memories", "sessions", "messages", "tasks", "learnings", "proposals", "known"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        """Such as "47 memories, 12 sessions, 3 tasks, 5 learnings"."""
        counts = {"session": self.sessions, "task": self.tasks, "learning": self.learnings}
        counts |= {"proposal": self.proposals} if self.proposals else {}
        rest = [f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items()]
        return ", ".join([f"{self.memories} memor{'y' if self.memories == 1 else 'ies'}", *rest])


BATCH_RECORDS, BATCH_CHARACTERS = 500, 4_000_000
MAX_NAMESAKES = 100
MAX_KEY_CHARS = 200
MAX_PLACE_CHARS = 200


Rows: TypeAlias = dict[str, ImportedRow]
"""The messages of a conversation, by their keys."""


@dataclass(slots=True)
class _Conversation:
    """A session while its messages are read; `last_at` stands in for missing times."""

    session: ImportedSession
    key: bytes
    last_at: datetime
    untimed: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Batch:
    """The records of one transaction, by their keys."""

    source: str
    label: Label
    answers: Label
    """The best label of what an assistant said."""
    facts: dict[bytes, ImportedMemory | ImportedTask] = field(default_factory=dict)
    said: dict[bytes, tuple[_Conversation, Rows]] = field(default_factory=dict)
    size: int = 0
    characters: int = 0

    def grow(self, text: str) -> None:
        """Count a record."""
        self.size += 1
        self.characters += len(text)

    @property
    def full(self) -> bool:
        """Whether it must be stored before more is read."""
        return self.size >= BATCH_RECORDS or self.characters >= BATCH_CHARACTERS


@dataclass(slots=True)
class ImportWriter:
    """Stores records for one principal and agent, and counts them.

    With `own` the person's own words get the label owner, all else `known`; no label is better than its record's.
    `clean` replaces live secrets in every text that is stored. A dry run reads the database, and changes nothing.
    """

    database: Database
    principal: PrincipalId
    agent: str
    now: datetime
    _: KW_ONLY
    own: bool
    dry_run: bool
    clean: Callable[[str], str]
    tally: Tally = field(default_factory=Tally, init=False)
    _stored_keys: set[bytes] = field(default_factory=set, init=False)
    """The keys that this run has stored, or would have stored in a dry run, of which the database has none."""

    async def store(self, source: str, records: Iterable[Record], *, labelled: bool = False) -> None:
        """Store the records in order; `labelled` ones have proven labels.

        An `OwnerMustAct` from reading them ends it, and is noted as damage.
        """
        own = Label.OWNER if labelled or self.own else Label.KNOWN
        new_batch = partial(_Batch, source, own, Label.OWNER if labelled else Label.KNOWN)
        batch, conversation = new_batch(), None
        try:
            for record in records:
                match record:
                    case ImportedSession(key=key, started_at=at):
                        conversation = _Conversation(record, session_key(source, key), at or self.now)
                    case ImportedMessage():
                        self._add_message(batch, conversation, record)
                    case ImportedMemory() | ImportedTask():
                        batch.facts.setdefault(_fact_key(record), record)
                        batch.grow(record.text)
                    case Passed(why=why):
                        self.tally.passed[why] += 1
                    case Damaged(why=why):
                        self.tally.damage(self._place(record), why)
                if batch.full:
                    await self._flush(batch)
                    batch = new_batch()
        except OwnerMustAct as error:
            self.tally.damage(source, str(error))
        await self._flush(batch)

    def _add_message(self, batch: _Batch, conversation: _Conversation | None, message: ImportedMessage) -> None:
        if conversation is None:
            self.tally.damage(self._place(message), "a message outside of a conversation; skipped")
            return
        text = self._cleaned(message.text)
        if len(text) > MAX_TEXT:
            self.tally.damage(self._place(message), f"only the first {MAX_TEXT:,} characters of the message were taken")
            text = text[:MAX_TEXT]
        conversation.last_at = message.at or conversation.last_at
        own_key = message.key if len(message.key) <= MAX_KEY_CHARS else _key(message.key).hex()
        key = storable(own_key) or _content_key(message, conversation.untimed)
        label = max(message.label, batch.label if message.role == "user" else batch.answers)
        _, rows = batch.said.setdefault(conversation.key, (conversation, {}))
        rows.setdefault(key, ImportedRow(key, message.role, text, conversation.last_at, label))
        batch.grow(text)

    async def _flush(self, batch: _Batch) -> None:
        if batch.size:
            self.tally.add(await self.database.run(lambda tx: self._stored(tx, batch)))
            self._stored_keys |= {*batch.facts, *batch.said}

    async def _stored(self, tx: Connection, batch: _Batch) -> Tally:
        """Store the new records of a batch; returns their counts."""
        if not self.dry_run:
            await imports.alone(tx, self.principal)
        done = Tally()
        known = await imports.known_keys(tx, self.principal, self.agent, {*batch.facts, *batch.said})
        known |= self._stored_keys & batch.facts.keys()
        done.known += len(known & batch.facts.keys())
        for key, (conversation, rows) in batch.said.items():
            done.add(await self._append(tx, batch, conversation, rows, known=key in known))
        for key, fact in batch.facts.items():  # after the messages that it was learned from
            if key in known:
                continue
            if isinstance(fact, ImportedTask):
                done.add(await self._add_task(tx, batch, key, fact))
            else:
                done.add(await self._remember(tx, batch, key, fact))
        return done

    async def _remember(self, tx: Connection, batch: _Batch, key: bytes, memory: ImportedMemory) -> Tally:
        if not (self.dry_run or await self._learned(tx, batch, key, memory)):
            return Tally(known=1)
        learning = Tally(learnings=1) if LEARNING in memory.tags else Tally(memories=1)
        return Tally(proposals=1) if memory.proposed else learning

    async def _learned(self, tx: Connection, batch: _Batch, key: bytes, memory: ImportedMemory) -> bool:
        """Remember or propose it; returns whether it is new."""
        carried, place = memory.carried, self._place(memory)
        new = NewMemory(
            self._cleaned(memory.text),
            memory.category,
            carried.importance,
            tags=tuple(map(self._cleaned, memory.tags)),
            pinned=carried.pinned,
            label=max(batch.label, memory.label),
            origin=f"{ORIGIN}{batch.source}",
            agent=carried.agent or self.agent,
            sources=tuple((await imports.carried_messages(tx, self.principal, carried.sources)).values()),
            event_at=memory.at,
            created_at=carried.created_at,
        )
        row: MemoryId | None = None
        is_new, ended = False, carried.superseded_at
        if memory.proposed:
            is_new = await consolidation.propose(tx, self.principal, new)
        elif ended and await memories.was_replaced(tx, self.principal, new, ended):
            pass
        elif learned := await memories.learn(tx, self.principal, new):
            stored, is_new = learned
            row = stored.id if stored.label >= new.label else None  # else a better trusted source had it
            if is_new and (carried.valid_to or ended):
                await memories.end(tx, stored.id, carried.valid_to, ended)
        await imports.note(tx, self.principal, self.agent, key, batch.source, place, memory=row)
        return is_new

    async def _add_task(self, tx: Connection, batch: _Batch, key: bytes, task: ImportedTask) -> Tally:
        """Add a task to the backlog, named by its first words and, if that name is in use, a number."""
        if self.dry_run:
            return Tally(tasks=1)
        text = self._cleaned(task.text)
        name = one_line(text, LONGEST_NAME - 5) or "task"
        for number in range(1, MAX_NAMESAKES):
            named = f"{name} ({number})" if number > 1 else name
            defined = define(now=self.now, zone=None, name=named, prompt=text[:MAX_PROMPT])
            origin = f"{ORIGIN}{batch.source}"
            row = await schedules.add(tx, self.principal, defined, next_run_at=None, origin=origin, label=batch.label)
            if row is not None:
                place = self._place(task)
                await imports.note(tx, self.principal, self.agent, key, batch.source, place, schedule=row.id)
                return Tally(tasks=1)
        self.tally.damage(self._place(task), f'there are {MAX_NAMESAKES} schedules called "{name}"; rename one of them')
        return Tally()

    async def _append(
        self, tx: Connection, batch: _Batch, conversation: _Conversation, rows: Rows, *, known: bool
    ) -> Tally:
        """Add the messages that its session lacks; start one unless the conversation is `known`."""
        session = await imports.session_of(tx, self.principal, self.agent, conversation.key) if known else None
        # If its session was deleted after the import, nothing of it comes back.
        had = await imports.said(tx, session, rows) if session else set(rows if known else ())
        if batch.source == PASSPORT:  # this gateway may still have the messages themselves
            had |= (await imports.carried_messages(tx, self.principal, rows)).keys()
        fresh = [row for key, row in rows.items() if key not in had]
        begins = bool(fresh) and session is None and conversation.key not in self._stored_keys
        done = Tally(known=len(rows) - len(fresh), messages=len(fresh), sessions=int(begins))
        if self.dry_run or not fresh:
            return done
        if session is None:
            session = await imports.start(tx, self.principal, self.agent, fresh[0].at)
            key, place = conversation.key, self._place(conversation.session)
            await imports.note(tx, self.principal, self.agent, key, batch.source, place, session=session)
        await imports.append(tx, session, self.principal, f"{ORIGIN}{batch.source}", fresh)
        return done

    def _place(self, record: ImportedMemory | ImportedMessage | ImportedSession | ImportedTask | Damaged) -> str:
        """Where a record was read, which may quote a title. It is cleaned first: a cut secret can't be found."""
        return one_line(self._cleaned(record.place), MAX_PLACE_CHARS)

    def _cleaned(self, text: str) -> str:
        return self.clean(storable(text))


def session_key(source: str, key: str) -> bytes:
    """The key under which a source's conversation is stored."""
    return _key(source, "session", key)


def _key(*parts: str) -> bytes:
    return sha256("\0".join(parts).encode("utf-8", "replace")).digest()


def _fact_key(fact: ImportedMemory | ImportedTask) -> bytes:
    ended = fact.carried.superseded_at if isinstance(fact, ImportedMemory) else None
    kind, content = "task" if isinstance(fact, ImportedTask) else "memory", content_hash(storable(fact.text)).hex()
    return _key(kind, content, *([ended.isoformat()] if ended else []))


def _content_key(message: ImportedMessage, untimed: Counter[str]) -> str:
    """A key that is equal for equal words at the same time; repeats without a time are numbered."""
    content = _key(message.role, storable(message.text), message.at.isoformat() if message.at else "").hex()[:32]
    if message.at is None:
        untimed[content] += 1
        content = f"{content}-{untimed[content]}"
    return content
