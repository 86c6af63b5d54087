"""Somebody who wrote somewhere, and what store tests do again and again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.ids import AddressId, EntryId, InstanceId, MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.principals import Label, Role
from gateway.domain.work.tasks import Claim, Lane, Status
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses
from gateway.store.people import principals
from gateway.store.transcript import messages, sessions, unread
from gateway.store.work import tasks

HOME = Address("fake", "bot", "1")


def arrival(text: str = "hello", id: str = "m1", **more: Any) -> Inbound:
    return Inbound(HOME, Sender("1", "Ada"), text, id, datetime.now(UTC), **{"private": True, "as_owner": True, **more})


@dataclass(frozen=True, slots=True)
class World:
    """The owner, at one address, in one session."""

    database: Database
    principal: PrincipalId
    session: SessionId
    address: AddressId

    async def ask(self, text: str, **more: Any) -> MessageId:
        async with self.database.transaction() as tx:
            inbound = arrival(text, id=str(uuid4()), **more)
            return await unread.receive(tx, self.session, self.principal, self.address, inbound, Label.OWNER, fresh())

    async def answer(self, text: str, task: TaskId | None = None) -> MessageId:
        async with self.database.transaction() as tx:
            said = AssistantText(text)
            whose, at = self.principal, self.address
            row = await messages.say(
                tx, self.session, whose, said, label=Label.OWNER, address=at, task=task, answers=True
            )
            return row.id

    async def chat(self, instance: InstanceId) -> None:
        async with self.database.transaction() as tx:
            await sessions.lock(tx, self.session)
            await tasks.create_chat(tx, self.principal, self.session, instance)

    async def queue(self, kind: str = "agent", lane: Lane = Lane.AGENTS, **more: Any) -> TaskId:
        async with self.database.transaction() as tx:
            task = await tasks.create(tx, self.principal, kind, lane, **more)
        assert task is not None
        return task

    async def claim(self, worker: InstanceId, slots: int = 1, lane: Lane = Lane.AGENTS) -> list[Claim]:
        async with self.database.connection() as conn:
            return await tasks.claim(conn, worker, {lane: slots})

    async def value(self, question: str, *arguments: object) -> Any:
        async with self.database.connection() as conn:
            return await conn.fetchval(question, *arguments)

    async def column(self, question: str, *arguments: object) -> list[Any]:
        async with self.database.connection() as conn:
            return [row[0] for row in await conn.fetch(question, *arguments)]

    async def do(self, statement: str, *arguments: object) -> None:
        async with self.database.connection() as conn:
            await conn.execute(statement, *arguments, timeout=120)  # some make a whole history

    async def status(self, task: TaskId) -> Status:
        async with self.database.connection() as conn:
            row = await tasks.get(conn, task)
        assert row is not None
        return row.status


async def found(database: Database) -> World:
    async with database.transaction() as tx:
        principal = await principals.add(tx, Role.OWNER, "Ada", ["fake:1"])
        session = await sessions.start(tx, principal, Label.OWNER)
        await addresses.add(tx, HOME, principal, session, private=True)
        at = await addresses.find(tx, HOME)
    assert at is not None
    return World(database, principal, session, at.id)


def fresh() -> EntryId:
    return EntryId(uuid4())


def somebody() -> InstanceId:
    return InstanceId(uuid4())


@asynccontextmanager
async def held(database: Database, statement: str, *arguments: object) -> AsyncIterator[Connection]:
    """A second transaction that has just done this, and commits at the end of the block."""
    async with database.transaction() as other:
        await other.execute(statement, *arguments)
        yield other


async def blocked(database: Database, work: Awaitable[Any], waiting: int = 1) -> "asyncio.Future[Any]":
    """Start `work` and come back once so many connections wait for a lock."""
    task = asyncio.ensure_future(work)
    question = """select count(*) from pg_stat_activity
                  where datname = current_database() and wait_event_type = 'Lock'"""
    async with asyncio.timeout(10), database.connection() as conn:
        while await conn.fetchval(question) < waiting:
            assert not task.done(), "it was to wait for a lock"
    return task
