"""The trace of a task: what each model call and tool run took, as references and numbers, never content."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gateway.domain.ids import PrincipalId, TaskId
from gateway.domain.model import Attempt, Reply
from gateway.store.pool import Connection

Kind = Literal["model", "tool", "hand-off", "note"]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One entry of a trace."""

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


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens and money over a stretch of time."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0


async def model_called(conn: Connection, task: TaskId, principal: PrincipalId, reply: Reply) -> None:
    """Record one model call with the tries that failed before it."""
    await conn.execute(
        """insert into task_steps (task_id, principal_id, kind, name, tokens_in, tokens_out, tokens_cached, cost_usd,
                                   latency_ms, failed)
           values ($1, $2, 'model', $3, $4, $5, $6, $7, $8, $9)""",
        task,
        principal,
        reply.model,
        reply.usage.input_tokens,
        reply.usage.output_tokens,
        reply.usage.cached_tokens,
        reply.usage.cost_usd,
        reply.latency_ms,
        [{"model": a.model, "error": a.error, "message": a.message} for a in reply.failed],
    )


async def tool_ran(conn: Connection, task: TaskId, principal: PrincipalId, tool: str, latency_ms: int) -> None:
    """Record one tool run."""
    sql = "insert into task_steps (task_id, principal_id, kind, name, latency_ms) values ($1, $2, 'tool', $3, $4)"
    await conn.execute(sql, task, principal, tool, latency_ms)


async def of_task(conn: Connection, task: TaskId, since: datetime) -> list[StepRow]:
    """What a task ran from a moment on, in order."""
    rows = await conn.fetch("select * from task_steps where task_id = $1 and created_at >= $2 order by id", task, since)
    return [StepRow(**{**row, "failed": tuple(Attempt(**a) for a in row["failed"])}) for row in rows]


_SPENT = """
select count(*)::int as calls, coalesce(sum(tokens_in), 0)::bigint as tokens_in,
       coalesce(sum(tokens_out), 0)::bigint as tokens_out, coalesce(sum(cost_usd), 0) as cost_usd
from task_steps where kind = 'model' and created_at >= $1
"""


async def spent_since(conn: Connection, since: datetime) -> Spent:
    """What all model calls since then used."""
    return await _spent(conn, _SPENT, since)


async def spent_on(conn: Connection, task: TaskId, since: datetime) -> Spent:
    """What the model calls of one task used since then."""
    return await _spent(conn, f"{_SPENT} and task_id = $2", since, task)


async def _spent(conn: Connection, query: str, *values: object) -> Spent:
    row = await conn.fetchrow(query, *values)
    assert row is not None, "an aggregate always has one row"
    return Spent(**row)
