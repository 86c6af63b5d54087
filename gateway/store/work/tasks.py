"""The engine's statements, as functions; what they promise is written beside them in migrations/0002_engine.sql."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Self
from uuid import UUID, uuid4

import structlog
from asyncpg import Record
from pydantic import TypeAdapter

from gateway.domain.conversation.transcript import Attached, ModelReplied, ToolFinished
from gateway.domain.ids import AddressId, InstanceId, MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label, Principal
from gateway.domain.text.texts import storable
from gateway.domain.text.tokens import estimate
from gateway.domain.work.tasks import LEASE_SECONDS, Claim, Lane, Status, TurnResult
from gateway.store.connection.pool import Connection, Database
from gateway.store.connection.rows import fetch_first, fetch_value
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.outbox import OutboxPart, State
from gateway.store.files import attachments
from gateway.store.files.attachments import LISTED_FILES
from gateway.store.migrate import known_schema
from gateway.store.transcript import tool_calls
from gateway.store.transcript.messages import KINDS, MessageRow
from gateway.store.transcript.unread import PATIENCE
from gateway.store.work.steps import facts_of

log = structlog.get_logger(__name__)

LEASE = timedelta(seconds=LEASE_SECONDS)
_PRINCIPAL, _ADDRESS = TypeAdapter(Principal), TypeAdapter(AddressRow)


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One line of a list of tasks."""

    id: TaskId
    kind: str
    status: Status
    attempts: int
    error: str | None


@dataclass(frozen=True, slots=True)
class TaskReport(TaskSummary):
    """A task's outcome: the agent's final text, and the delivery state of each of its parts."""

    created_at: datetime
    updated_at: datetime
    result: str | None
    delivery: tuple[State, ...]


async def create_chat(
    conn: Connection, principal: PrincipalId, session: SessionId, instance: InstanceId, *, delay: float = 0.0
) -> None:
    """Make sure a live task answers the session, after `delay` seconds at the latest. The caller holds the session."""
    sql = "select create_chat($1, $2, $3, $4, $5)"
    await conn.execute(sql, TaskId(uuid4()), principal, session, instance, timedelta(seconds=delay))


async def create(
    conn: Connection,
    principal: PrincipalId,
    kind: str,
    lane: Lane,
    *,
    payload: JsonObject | None = None,
    parent: TaskId | None = None,
    dedupe: str | None = None,
    max_attempts: int = 3,
    instance: InstanceId | None = None,
    priority: int = 0,
    session: SessionId | None = None,
    id: TaskId | None = None,
    agent: str = "default",
    budget_usd: float | None = None,
    delay: float = 0.0,
) -> TaskId | None:
    """Queue a task, due after `delay` seconds; None if a live one has the same `dedupe`, or there is one of this `id`.

    A child counts at its parent in the same transaction; None if the parent is over. Its `priority` is relative to
    that of its parent. It is left to `instance` for as
    long as that lives. `budget_usd` is that of the tree which it begins.
    """
    sql = "select create_task($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
    what = (id or TaskId(uuid4()), principal, kind, lane.value, payload or {}, dedupe, parent)
    how = (max_attempts, instance, priority, session, agent, budget_usd, timedelta(seconds=delay))
    return await fetch_value(conn, TaskId, sql, *what, *how)


@dataclass(frozen=True, slots=True)
class ChatRows:
    """The rows that a chat's turn starts from, as they were under one lock; its files as `attachments.of_turn`."""

    label: Label
    principal: Principal
    at: AddressRow
    transcript: Sequence[MessageRow]
    files: Sequence[Attached]
    all_files: int

    @classmethod
    def of(cls, state: Mapping[str, Any], rows: Sequence[Record]) -> Self:
        """From what `open_chat` returns."""
        placed = attachments.placed([MessageRow.of(row) for row in rows], state["files"])
        who, at = _PRINCIPAL.validate_python(state["principal"]), _ADDRESS.validate_python(state["address"])
        return cls(Label(state["label"]), who, at, *placed)


@dataclass(frozen=True, slots=True)
class OpenedClaim(Claim):
    """A run whose claim may have opened its chat."""

    chat: ChatRows | None = field(default=None, compare=False, repr=False)
    """None: it has still to be opened."""

    @classmethod
    def of(cls, rows: Sequence[Record]) -> Self:
        """From its rows of `claim_open`."""
        state = rows[0]["state"]
        run, chat = state["run"], ChatRows.of(state, rows[1:]) if "label" in state else None
        if "not_opened" in state:  # its run tries again, and logs the error itself
            log.warning("claim.not_opened", task_id=run["id"], code=state["not_opened"])
        ids = {name: run[name] and UUID(run[name]) for name in ("id", "principal_id", "session_id")}
        silent = None if run["silent_for"] is None else timedelta(seconds=run["silent_for"])
        return cls(**{**run, **ids, "lane": Lane(run["lane"]), "silent_for": silent}, chat=chat)


async def claim(
    conn: Connection, worker: InstanceId, free: Mapping[Lane, int], kinds: Collection[str] | None = None
) -> list[OpenedClaim]:
    """As many runs of each lane as it has slots free, of these kinds or of any, fenced and leased to this worker.

    A process older than the schema gets none. Chats of the usual kind are opened at once.
    """
    sql = "select o.state, (o.entry).*, o.fields from claim_open($1, $2, $3, $4, $5, $6, $7) o"
    lanes, which = dict(free), None if kinds is None else list(kinds)
    rows = await conn.fetch(sql, worker, lanes, LEASE, which, known_schema(), PATIENCE, LISTED_FILES)
    places = [place for place, row in enumerate(rows) if row["state"] is not None]
    return [OpenedClaim.of(rows[start:end]) for start, end in pairwise([*places, len(rows)])]


async def due_in(conn: Connection, most: float) -> float:
    """In how many seconds the first task that waits is due, at most so many; none if it is due already."""
    sql = """select greatest(0, least($1, extract(epoch from min(greatest(run_at, held_until)) - now())::float8))
             from tasks where status = 'pending'"""
    return float(await conn.fetchval(sql, most))


async def open_chat(conn: Connection, run: Claim, session: SessionId) -> ChatRows | None:
    """Take the unread messages of a chat, in one statement; raises `RunLost`.

    None if nothing is left to answer: the task has ended then, or waits for files that are being fetched.
    """
    sql = "select o.state, (o.entry).*, o.fields from open_chat($1, $2, $3, $4, $5, $6) o"
    rows = await conn.fetch(sql, session, run.id, run.token, run.suspect, PATIENCE, LISTED_FILES)
    return ChatRows.of(rows[0]["state"], rows[1:]) if rows else None


async def answer(
    conn: Connection,
    run: Claim,
    session: SessionId,
    result: TurnResult,
    address: AddressId,
    parts: Sequence[OutboxPart],
) -> MessageId | None:
    """End the run of a chat with an answer to all that its turn took, in one statement; raises `RunLost`.

    None, and nothing is stored, if the session's label is another one by now, or if a message is still unread.
    """
    sql = "select answer($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
    text, facts = storable(result.entry.text), facts_of(result.reply) if result.reply else None
    said = (KINDS[type(result.entry)], text, estimate(text), result.origin, result.reminded, facts)
    sent = ([part.text for part in parts], parts[0].reply_to if parts else None)
    ended = (result.status.value, result.error and storable(result.error))
    whose = (session, run.id, run.token, result.label, address)
    return await fetch_value(conn, MessageId, sql, *whose, *said, *sent, *ended)


async def payload(conn: Connection, task: TaskId) -> JsonObject:
    """The payload that the task was queued with."""
    found: JsonObject | None = await conn.fetchval("select input from tasks where id = $1", task)
    return found or {}


async def count_ahead(conn: Connection, run: Claim) -> int:
    """How many older tasks of its named conversation are not over."""
    sql = """select count(*) from tasks own join sessions s on s.id = own.session_id and s.name is not null
             join tasks t on t.session_id = s.id and t.seq < own.seq
             where own.id = $1 and t.status not in ('completed', 'failed', 'cancelled')"""
    return int(await conn.fetchval(sql, run.id))


async def hold(conn: Connection, run: Claim) -> None:
    """The fence: locks the task until the transaction ends; raises `RunLost` if this run no longer owns it."""
    await conn.execute("select from hold($1, $2)", run.id, run.token)


async def progress(conn: Connection, run: Claim, session: SessionId | None = None) -> None:
    """`hold`, for a transaction that commits a step: the attempts start over, and so does the lease.

    A `session` is locked before.
    """
    sql = """select progress($1, $2, $3)
             from (select) run left join (select from sessions where id = $4 for no key update) held on true"""
    await conn.execute(sql, run.id, run.token, LEASE, session)


async def extend(conn: Connection, run: Claim) -> None:
    """Renew the lease of one run that is about to act; raises `RunLost`."""
    sql = "update tasks set lease_until = now() + $3 where id = (select id from hold($1, $2))"
    await conn.execute(sql, run.id, run.token, LEASE)


async def step(database: Database, run: Claim, write: Callable[[Connection], Awaitable[None]]) -> None:
    """Commit what `write` stores as one step of the run; raises `RunLost`."""

    async def work(tx: Connection) -> None:
        await progress(tx, run)
        await write(tx)

    await database.run(work)


async def step_called(conn: Connection, run: Claim, session: SessionId, event: ModelReplied, label: Label) -> None:
    """Commit the step of a run whose model asked for calls, in one statement; raises `RunLost`."""
    sql = "select step_called($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
    text, calls = storable(event.reply.text), [tool_calls.call_facts(intent) for intent in event.intents]
    step = (session, run.id, run.token, LEASE, run.principal_id, label)
    await conn.execute(sql, *step, text, estimate(text), calls, facts_of(event.reply), run.kind == "agent")


async def step_concluded(conn: Connection, run: Claim, session: SessionId, done: ToolFinished, label: Label) -> None:
    """Commit the step of a run whose call has a result, in one statement; the session's label rises to `label`.

    Raises `RunLost`.
    """
    sql = "select step_concluded($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
    step = (session, run.id, run.token, LEASE, run.principal_id, label)
    result = tool_calls.result_facts(done.intent, done.result)
    await conn.execute(sql, *step, *result, done.duration_ms, not done.failed)


async def finish(
    conn: Connection,
    run: Claim,
    status: Status,
    *,
    error: str | None = None,
    said: MessageId | None = None,
    result: str | None = None,
) -> None:
    """End the task and tell its parent; open children are cancelled. Raises `RunLost`.

    What was `said` in a chat about it is found again by it; `result` is for its parent.
    """
    output = {**({} if said is None else {"message": said}), **({} if result is None else {"result": storable(result)})}
    why = error and storable(error)
    await conn.execute("select finish($1, $2, $3, $4, $5)", run.id, run.token, status.value, output or None, why)


async def requeue(
    conn: Connection, run: Claim, *, delay: float = 0.0, error: str | None = None, failed: bool = True
) -> None:
    """Back to pending, due after `delay` seconds; raises `RunLost`. A run that has not `failed` costs no attempt."""
    why = error and storable(error)
    await conn.execute("select suspend($1, $2, 'pending', $3, $4)", run.id, run.token, timedelta(seconds=delay), why)
    if not failed:
        await conn.execute("update tasks set attempts = greatest(0, attempts - 1) where id = $1", run.id)


async def renew(conn: Connection, run: Claim, *, delay: float = 0.0) -> None:
    """Back to pending with all attempts, because there is more to do; raises `RunLost`."""
    await conn.execute("select renew($1, $2, $3)", run.id, run.token, timedelta(seconds=delay))


async def hasten(conn: Connection, session: SessionId) -> None:
    """The session's chat task, if it waits, is due now; the caller holds the session."""
    sql = """update tasks set run_at = now()
             where session_id = $1 and kind = 'chat' and status = 'pending' and run_at > now()"""
    await conn.execute(sql, session)


async def hasten_kind(conn: Connection, kind: str, dedupe: str | None = None) -> None:
    """Tasks of this kind that wait, or the one with this `dedupe`, are due now."""
    sql = """update tasks set run_at = now() where kind = $1 and status = 'pending' and run_at > now()
               and ($2::text is null or dedupe = $2)"""
    await conn.execute(sql, kind, dedupe)


async def suspend(conn: Connection, run: Claim, status: Status) -> None:
    """Wait for children or for a human; goes straight back to pending if no child is open. Raises `RunLost`."""
    await conn.execute("select suspend($1, $2, $3)", run.id, run.token, status.value)


async def cancel(conn: Connection, root: TaskId) -> list[TaskId]:
    """End a tree as cancelled; returns what was running, for the processes that run it."""
    return [TaskId(row["cancel"]) for row in await conn.fetch("select cancel from cancel($1)", root)]


async def live_chat(conn: Connection, session: SessionId) -> TaskId | None:
    """The task that is answering a session, if any."""
    sql = "select id from tasks where session_id = $1 and kind = 'chat' and status in ('pending', 'running')"
    return await fetch_value(conn, TaskId, sql, session)


async def heartbeat(conn: Connection, worker: InstanceId, runs: Iterable[Claim]) -> set[TaskId]:
    """Renew the leases of these runs; returns the ids still owned."""
    known = list(runs)
    sql = "select heartbeat from heartbeat($1, $2, $3, $4)"
    rows = await conn.fetch(sql, worker, [run.id for run in known], [run.token for run in known], LEASE)
    return {TaskId(row["heartbeat"]) for row in rows}


async def recover(conn: Connection) -> int:
    """Put back what processes ran that died, once the leases are over; returns how many."""
    return int(await conn.fetchval("select recover($1)", LEASE))


async def died(conn: Connection, worker: InstanceId) -> int:
    """Put back at once what this instance was running when its process died; returns how many."""
    sql = """with own as (select id from tasks where status = 'running' and worker = $1 order by depth, id for update)
             select died($1, (select array_agg(id) from own), $2, 'the gateway was restarted')"""
    return int(await conn.fetchval(sql, worker, LEASE))


async def release(conn: Connection, worker: InstanceId, known: Iterable[TaskId] = ()) -> int:
    """Put back at once what this instance runs and a stop interrupts; returns how many.

    But for the `known` runs: what it was given without learning of it, because a reply was lost.
    """
    return int(await conn.fetchval("select release($1, 1, $2)", worker, list(known)))


async def queue(conn: Connection) -> dict[Status, int]:
    """How many tasks wait and run."""
    sql = """select status, count(*)::int as n from tasks
             where status not in ('completed', 'failed', 'cancelled') group by status"""
    return {Status(row["status"]): row["n"] for row in await conn.fetch(sql)}


async def report(conn: Connection, task: TaskId) -> TaskReport | None:
    """The outcome of one task; None if there is none of this id."""
    sql = """select t.id, t.kind, t.status, t.attempts, t.error, t.created_at, t.updated_at,
                    case when t.status = 'completed' then (
                      select m.text from messages m
                      where m.session_id = t.session_id and m.task_id = t.id and m.kind = 'assistant'
                      order by m.seq desc limit 1) end as result,
                    array(select o.state from outbox o where o.message_id = (t.output ->> 'message')::bigint
                          order by o.part) as delivery
             from tasks t where t.id = $1"""
    return await fetch_first(conn, TaskReport, sql, task)


async def get(conn: Connection, task: TaskId) -> TaskSummary | None:
    """The state of one task; None if there is none of this id."""
    sql = "select id, kind, status, attempts, error from tasks where id = $1"
    return await fetch_first(conn, TaskSummary, sql, task)
