"""What a turn asks of the database reads a bounded number of rows, however long the history is."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from asyncpg.connection import LoggedQuery

from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.ids import MessageId, TaskId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses, inbox, outbox
from gateway.store.files import attachments
from gateway.store.memory import search
from gateway.store.transcript import conversations, journals, messages, sessions, tool_calls, unread
from gateway.store.transcript.journals import CopyMark
from gateway.store.work import budgets, heartbeats, schedule_runs, steps, tasks
from tests.store.history import SUMMARISED, lived_long
from tests.store.world import World, arrival, fresh, somebody

FEW = 500
"""Rows that one step of a statement may look at; the history holds tens of thousands."""

GENERIC_AFTER = 6
"""Runs of a prepared statement after which the server may plan it for any arguments."""

Work = Callable[[Connection, World], Awaitable[object]]


async def _enter(conn: Connection, world: World) -> None:
    at = await addresses.get(conn, world.address)
    await inbox.enter(conn, arrival(id="new"), "message", at, fresh(), handled=True)


async def _lines(conn: Connection, world: World) -> None:
    journal = await journals.open_for(conn, world.session)
    copied = await conn.fetchval("select max(id) - 5 from messages")
    assert journal is not None
    await journals.lines(conn, journal.id, CopyMark(copied, 0))


NOW = datetime.now(UTC)
TASK = TaskId(uuid4())


ASKED_OFTEN: dict[str, Work] = {
    # storing what arrives
    "inbox.enter": _enter,
    "inbox.seen": lambda conn, world: inbox.find_duplicate(conn, arrival(id="p77")),
    "inbox.address_of": lambda conn, world: inbox.address_of_key(conn, "key", "k77"),
    "sessions.by_digest": lambda conn, world: sessions.by_digest(conn, world.principal, "key", "abc"),
    "unread.receive": lambda conn, world: unread.receive(
        conn, world.session, world.principal, world.address, arrival(id="new"), Label.OWNER, fresh()
    ),
    "tasks.create_chat": lambda conn, world: tasks.create_chat(conn, world.principal, world.session, somebody()),
    # the turn
    "unread.take": lambda conn, world: unread.take(conn, world.session, joining=False),
    "unread.left": lambda conn, world: unread.left(conn, world.session),
    "messages.transcript": lambda conn, world: messages.transcript(conn, world.session),
    "attachments.of_turn": lambda conn, world: attachments.of_turn(conn, world.session, [], 50),
    "messages.stored_since": lambda conn, world: messages.stored_since(conn, world.session, TASK, SUMMARISED),
    "messages.said_since": lambda conn, world: messages.said_since(conn, world.session, SUMMARISED),
    "tool_calls.next_ordinal": lambda conn, world: tool_calls.next_ordinal(conn, TASK),
    "messages.was_asked": lambda conn, world: messages.was_asked(conn, world.session, TASK),
    "messages.say": lambda conn, world: messages.say(
        conn, world.session, world.principal, AssistantText("hi"), label=Label.OWNER, answers=True
    ),
    "messages.close": lambda conn, world: messages.close(conn, world.session),
    "steps.spent_on": lambda conn, world: steps.spent_on(conn, TASK, NOW),
    "spending.accounts": lambda conn, world: budgets.accounts(conn, NOW, 0.0),
    "sessions.label_at_work": lambda conn, world: sessions.label_at_work(conn, world.principal),
    "standing.last_chat": lambda conn, world: search.last_chat(conn, world.principal, world.session, NOW, Label.KNOWN),
    "standing.candidates": lambda conn, world: search.bootstrap_candidates(
        conn, world.principal, NOW, ("core", "preference"), Label.KNOWN
    ),
    "standing.version": lambda conn, world: search.bootstrap_version(
        conn, world.principal, world.session, NOW, ("core", "preference"), Label.KNOWN
    ),
    "recalling.recalled": lambda conn, world: search.recall(conn, world.principal, ["teapo", "plumb"], Label.KNOWN, 15),
    "messages.sources_of_call": lambda conn, world: messages.sources_of_call(conn, world.session, TASK, 0),
    "messages.said_at": lambda conn, world: messages.said_at(conn, world.session, TASK, 0),
    # its journal
    "journals.open_for": lambda conn, world: journals.open_for(conn, world.session),
    "journals.unopened": lambda conn, world: journals.unopened(conn, 100),
    "journals.unopened of one": lambda conn, world: journals.unopened(conn, 1, world.session),
    "journals.unfiled": lambda conn, world: journals.unfiled(conn, 100),
    "journals.outline": lambda conn, world: journals.outline(conn, world.session),
    "journals.lines": _lines,
    # what polls
    "tasks.claim": lambda conn, world: tasks.claim(conn, somebody(), {Lane.CHAT: 200, Lane.AGENTS: 16}, ["chat"]),
    "tasks.recover": lambda conn, world: tasks.recover(conn),
    "tasks.queue": lambda conn, world: tasks.queue(conn),
    "tasks.live_chat": lambda conn, world: tasks.live_chat(conn, world.session),
    "inbox.unhandled": lambda conn, world: inbox.open_commands(conn),
    "outbox.due": lambda conn, world: outbox.due(conn, ["fake"], [], 200),
    "outbox.left_sending": lambda conn, world: outbox.left_sending(conn, "fake"),
    "schedule_runs.deliver": lambda conn, world: schedule_runs.deliver(conn),
    "schedule_runs.arrived": lambda conn, world: schedule_runs.settled_deliveries(conn),
    "schedule_runs.on_their_way": lambda conn, world: schedule_runs.on_their_way(conn),
    "schedule_runs.refuse": lambda conn, world: schedule_runs.refuse(conn, ["fake"]),
    "schedule_runs.known": lambda conn, world: schedule_runs.exists(conn, TASK),
    "heartbeats.look": lambda conn, world: heartbeats.concerns(conn, world.principal, NOW - timedelta(minutes=30), NOW),
    "heartbeats.get": lambda conn, world: heartbeats.get(conn),
    "heartbeats.spent": lambda conn, world: heartbeats.spent(conn, NOW - timedelta(hours=12)),
    # what screens and commands show
    "messages.shown": lambda conn, world: messages.shown(conn, world.session),
    "conversations.listed": lambda conn, world: conversations.listed(conn, world.principal, 50),
    "conversations.these": lambda conn, world: conversations.these(conn, world.principal, [world.session]),
    "conversations.stretch": lambda conn, world: conversations.stretch(conn, world.session, 500, 200),
    "messages.last_answer": lambda conn, world: messages.last_answer(conn, world.session),
    "messages.newest_summary": lambda conn, world: messages.newest_summary(conn, world.session),
    "messages.asked_at": lambda conn, world: messages.asked_at(conn, MessageId(5)),
    "messages.last_id": lambda conn, world: messages.last_id(conn),
    "sessions.recent": lambda conn, world: sessions.recent(conn, 50),
    "outbox.in_state": lambda conn, world: outbox.in_state(conn, "uncertain"),
    "addresses.last_spoken_at": lambda conn, world: addresses.last_spoken_at(conn, world.principal),
}


async def test_what_is_asked_often_never_reads_the_history(world: World) -> None:
    await lived_long(world)
    async with world.database.connection() as conn:
        most = {name: await _most_read(conn, world, work) for name, work in ASKED_OFTEN.items()}
    assert {name: steps for name, steps in most.items() if steps} == {}


async def _most_read(conn: Connection, world: World, work: Work) -> list[str]:
    """The steps of its plans that look at too many rows, and the tables that its functions read too much of."""
    asked: list[LoggedQuery] = []
    for _ in range(GENERIC_AFTER):
        async with _undone(conn):
            await work(conn, world)
    async with _undone(conn):
        before = await _fetched(conn)
        with conn.query_logger(asked.append):
            await work(conn, world)
        read = {table: rows - before.get(table, 0) for table, rows in (await _fetched(conn)).items()}
    found = [f"{table}: {rows} rows fetched" for table, rows in read.items() if rows > FEW]
    for query in asked:
        if (
            query.query.lstrip().startswith(("select", "with", "insert", "update", "("))
            and "pg_catalog" not in query.query
        ):
            async with _undone(conn):
                [[[plan]]] = await conn.fetch(f"explain (analyze, format json) {query.query}", *query.args)
            found += _heavy(plan["Plan"])
    return found


async def _fetched(conn: Connection) -> dict[str, int]:
    """Rows of each table that this connection has looked at; plans do not tell what happens inside functions."""
    rows = await conn.fetch(
        "select relname, seq_tup_read + coalesce(idx_tup_fetch, 0) as rows from pg_stat_xact_user_tables"
    )
    return {row["relname"]: row["rows"] for row in rows}


def _heavy(step: dict[str, Any]) -> Iterator[str]:
    rows = step["Actual Rows"] + step.get("Rows Removed by Filter", 0) + step.get("Rows Removed by Index Recheck", 0)
    if rows * step["Actual Loops"] > FEW:
        yield f"{step['Node Type']} {step.get('Relation Name', '')}: {rows * step['Actual Loops']:.0f} rows"
    for below in step.get("Plans", ()):
        yield from _heavy(below)


@asynccontextmanager
async def _undone(conn: Connection) -> AsyncIterator[None]:
    transaction = conn.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()
