"""The trace of a task: what each model call and tool run took, as references and numbers, never content."""

from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Literal

from gateway.domain.conversation.model import Attempt, Reply
from gateway.domain.ids import MessageId, OutboxId, PrincipalId, SessionId, TaskId
from gateway.domain.json import JsonObject
from gateway.domain.text.texts import storable
from gateway.domain.work.tasks import Claim, Status
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, fetch_record, statement
from gateway.store.transcript.messages import MessageRow

Kind = Literal["model", "intent", "tool", "hand-off", "review", "note"]
MOST = 500
"""Steps of one reading of a trace."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One entry of a trace; `message_id` is where the transcript has what was said, and `ok` how a run ended."""

    id: int
    task_id: TaskId
    principal_id: PrincipalId
    kind: Kind
    name: str
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    cost_usd: float
    latency_ms: int
    failed: tuple[Attempt, ...]
    created_at: datetime
    message_id: MessageId | None
    ok: bool | None
    tokens_thinking: int
    thinking_usd: float


@dataclass(frozen=True, slots=True)
class ModelUse:
    """Tokens and money over a stretch of time."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0


async def model_called(conn: Connection, run: Claim, reply: Reply, message: MessageId | None = None) -> None:
    """Record one model call with the tries that failed before it; `message` is its answer.

    With that is stored what the model thought, and what only its provider understands. What the call had reserved is
    settled by it; the caller holds the task.
    """
    sql = "select model_called($1, $2, $3, $3, $4)"
    await conn.execute(sql, run.id, run.principal_id, message, facts_of(reply))


def facts_of(reply: Reply) -> JsonObject:
    """A reply without what it said."""
    usage, thought, fields = reply.usage, reply.thought, reply.fields
    return {
        "model": reply.model,
        "tokens_in": usage.input_tokens,
        "tokens_out": usage.output_tokens,
        "tokens_cached": usage.cached_tokens,
        "cost_usd": usage.cost_usd,
        "latency_ms": reply.latency_ms,
        "failed": [{"model": a.model, "error": a.error, "message": a.message} for a in reply.failed],
        "tokens_thinking": usage.thinking_tokens,
        "thinking_usd": usage.thinking_usd,
        "thought": {"text": storable(thought.text), "ms": thought.milliseconds} if thought else None,
        "fields": [fields.source, fields.message, *fields.calls] if fields else None,
    }


async def note(
    conn: Connection, task: TaskId, principal: PrincipalId, kind: Kind, name: str, *, ok: bool | None = None
) -> None:
    """Record what took neither time nor money."""
    sql = "insert into task_steps (task_id, principal_id, kind, name, ok) values ($1, $2, $3, $4, $5)"
    await conn.execute(sql, task, principal, kind, name, ok)


async def of_task(conn: Connection, task: TaskId, since: datetime) -> list[StepRow]:
    """The steps of a task since a time, in order."""
    sql = "select * from task_steps where task_id = $1 and created_at >= $2 order by id"
    return await fetch_all(conn, StepRow, sql, task, since)


_OF_TASK = """
select * from task_steps
where task_id = $1 and id > $2 and ($3::bigint is null or id <= $3) order by id limit $4"""
_OF_TREE = """
select s.* from tasks t join task_steps s on s.task_id = t.id
where t.master_id = $1 and s.id > $2 and ($3::bigint is null or s.id <= $3) order by s.id limit $4"""


async def trace(
    conn: Connection, task: TaskId, *, tree: bool = False, since: int = 0, until: int | None = None, most: int = MOST
) -> list[StepRow]:
    """The steps of a task, or of the whole tree that it is the first of, behind the step `since`, in order."""
    return await fetch_all(conn, StepRow, _OF_TREE if tree else _OF_TASK, task, since, until, most)


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Selects steps of a trace: behind `since`, within a time, with these words in their name or what they refer to."""

    since: int = 0
    words: str = ""
    begin: datetime | None = None
    end: datetime | None = None


async def spans(conn: Connection, task: TaskId, wanted: TraceFilter, most: int) -> list[StepRow]:
    """The steps of a task as bars show them: a call that has run is one step, with its time."""
    values = wanted.since, wanted.begin, wanted.end, wanted.words
    return await fetch_all(conn, StepRow, statement("work/task_spans"), task, *values, most)


@dataclass(frozen=True, slots=True)
class TracedRun:
    """A task as its last run left it; `parent_token` is of its parent's last run."""

    kind: str
    agent: str
    status: Status
    session_id: SessionId | None
    parent_id: TaskId | None
    parent_token: int | None


async def traced(conn: Connection, task: TaskId) -> TracedRun | None:
    """The task of a run; None if it was deleted."""
    sql = "select t.*, p.token as parent_token from tasks t left join tasks p on p.id = t.parent_id where t.id = $1"
    return await fetch_first(conn, TracedRun, sql, task)


@dataclass(frozen=True, slots=True)
class TracedDelivery:
    """A part of a task's answer that was tried to send; `token` is of the task's last run."""

    id: OutboxId
    task_id: TaskId
    token: int
    channel: str
    state: str
    sending_at: datetime
    ended_at: datetime


async def deliveries(conn: Connection, message: MessageId) -> list[TracedDelivery]:
    """The parts of a task's message; none before the last of them is sent or given up."""
    sql = """select o.id, m.task_id, t.token, a.channel, o.state, o.sending_at, coalesce(o.sent_at, now()) as ended_at
             from messages m join tasks t on t.id = m.task_id
             join outbox o on o.message_id = m.id join addresses a on a.id = o.address_id
             where m.id = $1 and o.sending_at is not null and not exists (
               select from outbox where message_id = $1 and state in ('pending', 'sending'))
             order by o.id"""
    return await fetch_all(conn, TracedDelivery, sql, message)


_CONTENTS = """
select m.* from task_steps s join messages f on f.id = s.message_id join messages m
  on m.id = f.id or (s.kind <> 'model' and m.task_id = f.task_id and m.ordinal = f.ordinal)
where s.id = $1 and s.principal_id = $2 order by m.id"""


async def contents(conn: Connection, principal: PrincipalId, step: int) -> list[MessageRow]:
    """The messages that one of the person's steps refers to: a call with its result, or what a model said first."""
    return await fetch_all(conn, MessageRow, _CONTENTS, step, principal)


@dataclass(frozen=True, slots=True)
class CallPlace:
    """The place of a model call: in the transcript behind `seq`, by this agent."""

    session: SessionId
    seq: int
    agent: str


async def asked_at(conn: Connection, task: TaskId, step: int) -> CallPlace | None:
    """The place of the task's last model call up to this step; None if there is none."""
    sql = """select m.session_id as session, m.seq - 1 as seq,
                    coalesce((select split_part(h.name, ' > ', 1) from task_steps h
                              where h.task_id = t.id and h.kind = 'hand-off' and h.id > s.id order by h.id limit 1),
                             t.agent) as agent
             from tasks t join task_steps s on s.task_id = t.id and s.kind = 'model'
             join messages m on m.id = s.message_id
             where t.id = $1 and s.id <= $2 and exists (select from task_steps where id = $2 and task_id = $1)
             order by s.id desc limit 1"""
    return await fetch_first(conn, CallPlace, sql, task, step)


_PATIENCE = 5.0
"""Seconds: longer than any transaction of ours that writes steps, unless its process is frozen."""


@dataclass(slots=True)
class CommittedSteps:
    """The step up to which all are committed: a step has its number before its commit.

    A reader that continues behind the last step it saw would miss one committed later under a lower number.
    """

    upto: int = 0
    _next: int = 0
    _after: int = -1
    _since: float = 0.0

    async def look(self, conn: Connection) -> bool:
        """Whether that is all there is now; if not, look again soon."""
        last = int(await conn.fetchval("select last_value from task_steps_id_seq"))
        sql = """select pg_snapshot_xmin(s)::text::bigint as oldest, pg_snapshot_xmax(s)::text::bigint as next
                 from pg_current_snapshot() s"""
        row = await fetch_record(conn, sql)
        if row["oldest"] == row["next"]:
            self.upto, self._after = last, -1
            return True
        late = monotonic() > self._since + _PATIENCE
        if self._after >= 0 and (row["oldest"] >= self._after or late):
            self.upto, self._after = self._next, -1
        if self._after < 0:
            self._next, self._after, self._since = last, row["next"], monotonic()
        return self.upto >= last


_SPENT = """
select count(*)::int as calls, coalesce(sum(tokens_in), 0)::bigint as tokens_in,
       coalesce(sum(tokens_out), 0)::bigint as tokens_out, coalesce(sum(cost_usd), 0) as cost_usd
from task_steps where kind = 'model' and created_at >= $1
"""


async def has_answered(conn: Connection, models: str) -> bool:
    """Whether a model whose name is like this pattern has ever been called."""
    sql = "select exists (select from task_steps where kind = 'model' and name like $1)"
    return bool(await conn.fetchval(sql, models))


async def spent_since(conn: Connection, since: datetime) -> ModelUse:
    """The use of all model calls since then."""
    return await fetch_one(conn, ModelUse, _SPENT, since)


async def spent_on(conn: Connection, task: TaskId, since: datetime) -> ModelUse:
    """The use of one task's model calls since then."""
    return await fetch_one(conn, ModelUse, f"{_SPENT} and task_id = $2", since, task)
