"""Tool calls in a transcript: intents, results, and the calls that a client of /v1 carries out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.transcript import ToolFinished, ToolIntent, ToolResult
from gateway.domain.ids import MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.text.tokens import estimate
from gateway.domain.work.plans import PLAN, PLANNED_CALLS, Spent
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_value, statement
from gateway.store.transcript.messages import CLIENT, WRITTEN, MessageRow


async def intend(
    conn: Connection,
    session: SessionId,
    principal: PrincipalId,
    task: TaskId | None,
    intents: Sequence[ToolIntent],
    label: Label,
) -> list[MessageId]:
    """Store calls before they run, in order; those without a task were made before the conversation reached us."""
    sql = "select id from intend($1, $2, $3, $4, $5) id"
    calls = [call_facts(intent) for intent in intents]
    return [MessageId(row["id"]) for row in await conn.fetch(sql, session, principal, task, label, calls)]


def call_facts(intent: ToolIntent) -> JsonObject:
    """A call as the functions of the database take it."""
    call, origin = intent.call, CLIENT if intent.handed else WRITTEN if intent.call.written else "agent"
    named: JsonObject = {"ordinal": intent.ordinal, "id": storable(call.id), "tool": storable(call.name)}
    return {**named, "arguments": storable(call.arguments), "tokens": estimate(call.arguments), "origin": origin}


async def pass_unasked(conn: Connection, session: SessionId, task: TaskId, ordinal: int, *, alone: bool) -> bool:
    """Note that this call runs without a question, though it sends or changes something; the session is locked.

    `alone`: only if no other such call has passed since the first message that is still being answered. A call that
    was noted before passes again. False for a call that was not stored.
    """
    sql = """update messages m set unasked = true
             where m.session_id = $1 and m.task_id = $2 and m.ordinal = $3 and m.kind = 'tool_intent'
               and not ($4 and exists (
                 select from messages other where other.session_id = $1 and other.unasked and other.id <> m.id
                   and other.seq > (select min(seq) from messages where session_id = $1 and kind = 'user'
                                    and seq is not null and answered_by is null and closed_at is null)))
             returning id"""
    return await conn.fetchval(sql, session, task, ordinal, alone) is not None


@dataclass(frozen=True, slots=True)
class PlanCall:
    """The call that made a plan, and its result."""

    ordinal: int
    arguments: str
    result: str


async def planned(conn: Connection, session: SessionId, task: TaskId, own: Label) -> PlanCall | None:
    """The newest plan of a run that was made while only `own` words had been read, and that nothing has voided.

    A message that the run has taken since, and the withdrawal of one that it answers, void it.
    """
    sql = """select p.ordinal, p.text as arguments, r.text as result from messages p
             join messages r on r.task_id = p.task_id and r.ordinal = p.ordinal and r.kind = 'tool_result'
             where p.session_id = $1 and p.task_id = $2 and p.kind = 'tool_intent' and p.tool = $4 and p.label <= $3
               and p.origin = 'agent' and r.text like '{"planned":%'
               and not exists (select from messages u where u.session_id = $1 and u.kind = 'user' and (u.seq > p.seq
                 or (u.seq is not null and u.answered_by is null and u.closed_at is null and u.withdrawn is not null)))
             order by p.ordinal desc limit 1"""
    return await fetch_first(conn, PlanCall, sql, session, task, own, PLAN)


async def scheduled(conn: Connection, task: TaskId, own: Label) -> PlanCall | None:
    """The plan that every run of a schedule begins with, as confirmed, for its last run; a change of it voids that."""
    sql = """select -1 as ordinal, s.plan ->> 'arguments' as arguments, s.plan ->> 'result' as result
             from tasks t join schedules s on s.id = (t.input ->> 'schedule')::bigint and s.task_id = t.id
             where t.id = $1 and s.label <= $2 and s.plan is not null"""
    return await fetch_first(conn, PlanCall, sql, task, own)


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that fills a step of a plan, and the call of that plan with its result.

    `asked` is the call's own result if it was a question.
    """

    number: int
    unasked: bool | None
    plan: str
    result: str
    asked: str | None


async def planned_calls(conn: Connection, task: TaskId, since: datetime) -> list[PlannedCall]:
    """The calls of a task since a time that filled steps of plans, in order."""
    return await fetch_all(conn, PlannedCall, statement("transcript/planned_calls"), task, since, PLAN)


async def spent_steps(conn: Connection, task: TaskId, plan: int) -> list[Spent]:
    """The steps that calls have filled, or asked about, since the call `plan`, in order."""
    sql = """select i.plan_step as number, i.ordinal, r.text as result,
                    coalesce((q.arguments -> 'calls' -> -1 ->> 'step')::int, i.plan_step) as last
             from messages i
             left join messages r on r.task_id = i.task_id and r.ordinal = i.ordinal and r.kind = 'tool_result'
             left join reviews q on q.task_id = i.task_id and q.ordinal = i.ordinal and q.tool = $3
             where i.task_id = $1 and i.kind = 'tool_intent' and i.plan_step is not null and i.ordinal > $2
             order by i.ordinal"""
    return await fetch_all(conn, Spent, sql, task, plan, PLANNED_CALLS)


async def spend_step(conn: Connection, task: TaskId, ordinal: int, plan: int, number: int, arguments: str) -> bool:
    """Have a call fill a step, with these arguments; the session is locked. False if that step or a later one is spent.

    A call that fills it already may do so again.
    """
    sql = """update messages m set plan_step = $4, text = $5
             where m.task_id = $1 and m.ordinal = $2 and m.kind = 'tool_intent' and m.ordinal > $3
               and coalesce(m.plan_step, $4) = $4 and not exists (
                 select from messages other
                 left join reviews q on q.task_id = $1 and q.ordinal = other.ordinal and q.tool = $6
                 where other.task_id = $1 and other.kind = 'tool_intent' and other.ordinal > $3 and other.ordinal <> $2
                   and greatest(other.plan_step, (q.arguments -> 'calls' -> -1 ->> 'step')::int) >= $4)
             returning id"""
    return await conn.fetchval(sql, task, ordinal, plan, number, storable(arguments), PLANNED_CALLS) is not None


async def conclude(
    conn: Connection,
    session: SessionId,
    principal: PrincipalId,
    task: TaskId | None,
    intent: ToolIntent,
    result: ToolResult,
    label: Label,
    done: ToolFinished | None = None,
) -> None:
    """Store the result of a call, with the step if it is `done` by a run; a call that has a result keeps it."""
    sql = "select conclude($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    ended = (done.duration_ms, not done.failed) if done else (None, None)
    await conn.execute(sql, session, principal, task, label, *result_facts(intent, result), *ended)


def result_facts(intent: ToolIntent, result: ToolResult) -> tuple[JsonObject, str, int]:
    """A result as the functions of the database take it."""
    text, origin = storable(result.text), CLIENT if intent.handed else "tool"
    call: JsonObject = {"ordinal": intent.ordinal, "id": storable(result.call_id), "tool": storable(intent.call.name)}
    return {**call, "origin": origin}, text, estimate(text)


async def of_answers(conn: Connection, asked: Sequence[MessageId]) -> list[str]:
    """The calls (task/ordinal) that turns made to answer these messages."""
    sql = """select distinct c.task_id || '/' || c.ordinal as key from messages m
             left join messages a on a.id = m.answered_by
             join messages c on c.session_id = m.session_id and c.kind = 'tool_intent' and c.task_id is not null
               and c.seq > m.seq and c.seq < case when m.closed_at is null then coalesce(a.seq, 2147483647) else 0 end
             where m.id = any($1)"""
    return [row["key"] for row in await conn.fetch(sql, asked)]


async def prompt_of(conn: Connection, task: TaskId) -> MessageId | None:
    """The prompt of an unattended run."""
    sql = """select m.id from tasks t join messages m on m.session_id = t.session_id and m.task_id = t.id
             where t.id = $1 and m.kind = 'user' order by m.seq limit 1"""
    return await fetch_value(conn, MessageId, sql, task)


async def next_ordinal(conn: Connection, task: TaskId) -> int:
    """The first free key for a tool call of a task, whatever a summary hides of it."""
    sql = "select coalesce(max(ordinal) + 1, 0) from messages where task_id = $1 and ordinal is not null"
    return int(await conn.fetchval(sql, task))


async def handed_since(conn: Connection, session: SessionId, seq: int, until: int = 2**31 - 1) -> list[ToolCall]:
    """The calls between the same places that the client is to run, in order."""
    sql = """select call_id, tool, text from messages
             where session_id = $1 and kind = 'tool_intent' and origin = 'client' and seq > $2 and seq <= $3
             order by seq"""
    return [ToolCall(row["call_id"], row["tool"], row["text"]) for row in await conn.fetch(sql, session, seq, until)]


async def handed(conn: Connection, session: SessionId, call_id: str) -> MessageRow | None:
    """The latest call with this id that a client was to run."""
    sql = """select * from messages where session_id = $1 and kind = 'tool_intent' and origin = 'client'
               and call_id = $2 order by seq desc limit 1"""
    return await fetch_first(conn, MessageRow, sql, session, storable(call_id))


async def handed_open(conn: Connection, session: SessionId, task: TaskId) -> list[MessageRow]:
    """The calls of a task that it handed on and that have no result yet, in order."""
    sql = """select * from messages i where session_id = $1 and task_id = $2 and kind = 'tool_intent'
               and origin = 'client' and not exists (
                 select from messages r
                 where r.task_id = i.task_id and r.ordinal = i.ordinal and r.kind = 'tool_result')
             order by ordinal"""
    return await fetch_all(conn, MessageRow, sql, session, task)
