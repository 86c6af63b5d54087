"""The journal at work: what inbound, the sinks and the commands do around it, done by hand."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from gateway.config.machine import SystemClock
from gateway.domain.conversation.inbound import Address, Arrival, Inbound, Sender
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.transcript import AssistantText, Summary, ToolIntent, ToolResult
from gateway.domain.ids import EntryId, PrincipalId, SessionId, TaskId
from gateway.domain.people.access import Access
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.flow.journal.journal import Journal
from gateway.flow.people import People, meet
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses, inbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import journals, messages, sessions, tool_calls, unread
from gateway.store.work import tasks
from gateway.workspace.journal.entries import Content, JournalEntry, parse_entries, render_entries
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import journal_key

OWNER, MEMBER = "1", "2"
_ids = itertools.count(1)


def arrival(
    text: str, chat: str = OWNER, id: str | None = None, thread: str = "", entry: EntryId | None = None, **more: Any
) -> Arrival:
    inbound = Inbound(
        Address("fake", "bot", chat, thread),
        Sender(chat, "Ada"),
        text,
        id or f"m{next(_ids)}",
        datetime.now(UTC),
        **{"private": True, "as_owner": True, **more},
    )
    return Arrival(entry or EntryId(uuid4()), inbound, datetime.now(UTC))


@dataclass
class Desk:
    database: Database
    people: People
    journal: Journal
    workspace: Path
    data: Path

    async def hear(self, text: str, **more: Any) -> SessionId:
        """Written, stored, told."""
        return await self.take(arrival(text, **more))

    async def take(self, arrived: Arrival) -> SessionId:
        return await self.store(arrived, await self.write(arrived))

    async def write(self, arrived: Arrival) -> Place | None:
        return await self.journal.write(arrived, self.people.role(arrived.inbound))

    async def store(self, arrived: Arrival, place: Place | None) -> SessionId:
        async with self.database.transaction() as tx:
            session = await self.commit(tx, arrived, place)
        self.journal.stored(arrived, place, session)
        return session

    async def commit(self, tx: Connection, arrived: Arrival, place: Place | None) -> SessionId:
        inbound = arrived.inbound
        at = await addresses.lock(tx, inbound.address) or await self.open(tx, inbound)
        await sessions.lock(tx, at.session_id)
        if place is not None:
            await self.journal.bind(tx, at, place)
        kind: inbox.Kind = "edit" if inbound.edits else "command" if inbound.text.startswith("/") else "message"
        entered = await inbox.enter(tx, inbound, kind, at, arrived.id, handled=True)
        if entered is not None and kind == "message":
            said = await unread.receive(tx, at.session_id, at.principal_id, at.id, inbound, Label.OWNER, arrived.id)
            await inbox.set_message(tx, entered, said)
        return at.session_id

    async def open(self, tx: Connection, inbound: Inbound) -> AddressRow:
        principal = await self.people.principal(tx, inbound, self.people.role(inbound))
        session = await sessions.start(tx, principal, Label.OWNER)
        await addresses.add(tx, inbound.address, principal, session, private=inbound.private)
        at = await addresses.lock(tx, inbound.address)
        assert at is not None
        return at

    async def answer(self, session: SessionId, text: str) -> None:
        async with self.database.transaction() as tx:
            await unread.take(tx, session, joining=False)
            whose, said = await self.principal(tx, session), AssistantText(text)
            await messages.say(tx, session, whose, said, label=Label.OWNER, origin="agent", answers=True)
        self.journal.changed(session)

    async def use_tool(self, session: SessionId, arguments: str, result: str) -> None:
        async with self.database.transaction() as tx:
            principal = await self.principal(tx, session)
            task = await tasks.create(tx, principal, "agent", Lane.AGENTS)
            assert task is not None
            intent = ToolIntent(ToolCall("c1", "look", arguments), 0)
            await tool_calls.intend(tx, session, principal, TaskId(task), [intent], Label.OWNER)
            await tool_calls.conclude(
                tx, session, principal, TaskId(task), intent, ToolResult("c1", result), Label.OWNER
            )
        self.journal.changed(session)

    async def compact(self, session: SessionId, summary: str) -> None:
        async with self.database.transaction() as tx:
            await sessions.lock(tx, session)
            principal = await self.principal(tx, session)
            await messages.say(tx, session, principal, Summary(summary), label=Label.OWNER, covers=1)
            await journals.close(tx, session, summary)
        self.journal.changed(session)

    async def new(self, chat: str = OWNER, summary: str = "about this") -> SessionId:
        """As /new does."""
        async with self.database.transaction() as tx:
            at = await addresses.lock(tx, Address("fake", "bot", chat))
            assert at is not None
            await sessions.lock(tx, at.session_id)
            await journals.close(tx, at.session_id, summary)
            await sessions.end(tx, at.session_id)
            session = await sessions.start(tx, at.principal_id, Label.OWNER)
            await addresses.move(tx, at.session_id, session)
        self.journal.changed(at.session_id)
        return session

    async def principal(self, tx: Connection, session: SessionId) -> PrincipalId:
        return PrincipalId(await tx.fetchval("select principal_id from sessions where id = $1", session))

    async def restore(self, found: Sequence[tuple[Arrival, Place]]) -> None:
        for each, place in found:
            await self.store(each, place)

    async def started(self) -> list[Arrival]:
        """What a start does before anything is taken in; returns what it found."""
        found = await self.journal.unstored()
        await self.restore(found)
        self.journal.check.begun(self.restore)
        return [each for each, _ in found]

    async def settled(self) -> None:
        """Until there is nothing left to do at once."""
        for _ in range(5):
            if await self.journal.catch_up():
                return
        raise AssertionError("it does not settle")

    async def rows(self, question: str, *arguments: object) -> list[Any]:
        async with self.database.connection() as conn:
            return [tuple(row) for row in await conn.fetch(question, *arguments)]

    def root(self, principal: PrincipalId) -> Path:
        return self.data / "principals" / str(principal)

    def files(self, folder: str = "sessions") -> list[Path]:
        return sorted(path for path in (self.workspace / folder).rglob("*.md") if path.name != "INDEX.md")

    def content(self, file: Path) -> Content:
        return parse_entries(file.read_bytes(), self.key)

    @property
    def key(self) -> bytes:
        return journal_key(self.data / "keys" / "journal")

    def entries(self, file: Path) -> list[JournalEntry]:
        entries = self.content(file).entries
        assert render_entries(entries, self.key) == file.read_bytes(), "each is there once, and nothing else"
        return list(entries)

    def said(self, file: Path) -> list[tuple[str, str]]:
        return [(entry.kind, entry.text) for entry in self.entries(file)]

    @property
    def file(self) -> Path:
        """The one session file there is."""
        [file] = self.files()
        return file


async def desk(database: Database, home: Path) -> Desk:
    """A gateway's journal over these files; another one is what a restart leaves."""
    people = await meet(database, "Ada", {"fake": OWNER})
    people.allow({"fake": Access("allowlist", frozenset({OWNER, MEMBER}))})
    workspace, data = home / "workspace", home / "data"
    workspace.mkdir(parents=True, exist_ok=True)
    data.mkdir(exist_ok=True)
    return Desk(database, people, Journal(database, people, workspace, data, SystemClock()), workspace, data)
