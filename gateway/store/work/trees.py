"""Trees of tasks: nodes with their children, results and costs."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from gateway.domain.ids import PrincipalId, SessionId, TaskId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim, Status
from gateway.store.connection.pool import Connection, lock_name
from gateway.store.connection.rows import fetch_all, fetch_one, fetch_record, fetch_value, statement
from gateway.store.work import steps


@dataclass(frozen=True, slots=True)
class Node:
    """One task of a tree as programs may see it, with what its own model calls took.

    `waits_for` is its oldest open question or approval.
    """

    id: TaskId
    parent_id: TaskId | None
    depth: int
    name: str
    agent: str
    status: Status
    error: str | None
    result: str | None
    cost_usd: float
    tokens: int
    waits_for: str | None
    storage_paths: list[str]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NodeRow(Node):
    """A node as stored. `tool` is the one that its last step asked for; None: that step was another one."""

    intermediate_data: JsonObject | None
    session_id: SessionId
    budget_usd: float | None
    last_step: int | None
    tool: str | None


@dataclass(frozen=True, slots=True)
class ChildRow:
    """A child as its parent sees it: its result, or why there is none; `label` is that of all it had read."""

    name: str
    agent: str
    status: Status
    result: str | None
    error: str | None
    storage_paths: list[str]
    label: Label


_DIGITS = re.compile(r"[0-9a-f]{4,32}", re.ASCII)
_NODE = """
select t.id, t.parent_id, t.depth, coalesce(t.input ->> 'name', t.kind) as name, t.agent, t.status, t.error,
       t.output ->> 'result' as result, t.intermediate_data, t.storage_paths, t.session_id, t.budget_usd,
       t.created_at, t.updated_at, s.cost_usd, s.tokens, s.last_step,
       (select name from task_steps where id = s.last_step and kind = 'intent') as tool,
       (select 'A' || r.id from reviews r join tasks w on w.id = r.task_id
        where {asks} and r.state = 'open' order by r.id limit 1) as waits_for
from tasks t cross join lateral (
  select coalesce(sum(cost_usd), 0) as cost_usd, coalesce(sum(tokens_in + tokens_out), 0)::bigint as tokens,
         max(id) as last_step
  from task_steps where task_id = t.id) s
"""
_ALONE = _NODE.format(asks="w.id = t.id")
_WITH_ALL_BELOW = _NODE.format(asks="w.master_id = t.id")


async def nodes(conn: Connection, master: TaskId) -> list[NodeRow]:
    """A whole tree, parents before their children, in the order they were made; empty if there is none."""
    sql = f"{_ALONE} where t.master_id = $1 and t.session_id is not null order by depth, seq"
    return await fetch_all(conn, NodeRow, sql, master)


async def nodes_among(conn: Connection, tasks: Collection[TaskId]) -> set[TaskId]:
    """Those of the tasks that are nodes of trees."""
    sql = "select id from tasks where id = any($1) and kind = 'agent' and input ->> 'origin' = 'task'"
    return {TaskId(row["id"]) for row in await conn.fetch(sql, list(tasks))}


async def newest(conn: Connection, principal: PrincipalId, most: int) -> list[NodeRow]:
    """The first tasks of a person's latest trees, the newest first; each waits for what any of its tree asks."""
    sql = f"""{_WITH_ALL_BELOW} where t.principal_id = $1 and t.parent_id is null and t.kind = 'agent'
                and t.input ->> 'origin' = 'task' order by t.seq desc limit $2"""
    return await fetch_all(conn, NodeRow, sql, principal, most)


async def live(conn: Connection, principal: PrincipalId) -> int:
    """How many of a person's trees haven't ended."""
    sql = """select count(*) from tasks where principal_id = $1 and parent_id is null and kind = 'agent'
               and input ->> 'origin' = 'task' and status not in ('completed', 'failed', 'cancelled')"""
    return int(await conn.fetchval(sql, principal))


async def started_in(conn: Connection, session: SessionId) -> tuple[int, float]:
    """How many trees under way a conversation with others' words has started, and what they may cost together.

    No other one is started there until the transaction ends.
    """
    await lock_name(conn, f"supaclaw.trees {session}")
    sql = """select count(*), coalesce(sum(budget_usd), 0) from tasks where input ->> 'started_in' = $1
               and kind = 'agent' and parent_id is null and status not in ('completed', 'failed', 'cancelled')"""
    number, cost = await fetch_record(conn, sql, str(session))
    return number, cost


@dataclass(frozen=True, slots=True)
class TreeFilter:
    """Which trees a list shows; None: all. `before` is the last one of the page before, `text` is in its name."""

    status: Status | None = None
    agent: str | None = None
    text: str | None = None
    before: TaskId | None = None


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A tree as a list shows it: its first task, with totals over all of its tasks.

    `counts` has how many of them are in each status, `waits_for` the open questions and approvals of all, such as A17.
    """

    id: TaskId
    name: str
    agent: str
    status: Status
    counts: dict[Status, int]
    cost_usd: float
    tokens: int
    budget_usd: float | None
    fork_of: TaskId | None
    waits_for: tuple[str, ...]
    created_at: datetime
    updated_at: datetime


async def listing(conn: Connection, principal: PrincipalId, wanted: TreeFilter, most: int) -> list[TreeRow]:
    """A page of a person's trees, the newest first."""
    values = (wanted.status, wanted.agent, wanted.text, wanted.before)
    return await fetch_all(conn, TreeRow, statement("work/list_trees"), principal, *values, most)


async def matching(conn: Connection, principal: PrincipalId, beginning: str) -> list[TaskId]:
    """The person's tasks of trees whose id begins so, two at most; none if it's no beginning of an id."""
    digits = beginning.replace("-", "")
    if not _DIGITS.fullmatch(digits):
        return []
    sql = """select id from tasks where id between $2 and $3
               and principal_id = $1 and kind = 'agent' and input ->> 'origin' = 'task' limit 2"""
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    return [TaskId(row["id"]) for row in await conn.fetch(sql, principal, first, last)]


async def children(conn: Connection, parent: TaskId, call: int) -> list[ChildRow]:
    """The children that one call created, in order."""
    sql = """select t.input ->> 'name' as name, t.agent, t.status, t.output ->> 'result' as result, t.error,
                    t.storage_paths, s.label
             from tasks t join sessions s on s.id = t.session_id
             where t.parent_id = $1 and (t.input ->> 'call')::int = $2 order by t.seq"""
    return await fetch_all(conn, ChildRow, sql, parent, call)


async def counts(conn: Connection, task: TaskId, *, tree: bool) -> dict[Status, int]:
    """How many tasks are in each status: of a tree by its first task, or the task alone."""
    sql = """select status, count(*)::int as tasks from tasks
             where (id = $1 and not $2) or (master_id = $1 and $2) group by status"""
    return {Status(row["status"]): row["tasks"] for row in await conn.fetch(sql, task, tree)}


async def master_of(conn: Connection, task: TaskId) -> TaskId:
    """The first task of its tree."""
    return TaskId(await conn.fetchval("select master_id from tasks where id = $1", task))


async def size(conn: Connection, master: TaskId) -> int:
    """How many tasks a tree has; no other run adds one until the transaction ends."""
    await lock_name(conn, f"supaclaw.tree {master}")
    return int(await conn.fetchval("select count(*) from tasks where master_id = $1", master))


async def fork_of(conn: Connection, task: TaskId) -> TaskId | None:
    """The fork that the task belongs to, if it belongs to one."""
    return await fetch_value(conn, TaskId, "select (input ->> 'fork')::uuid from tasks where id = $1", task)


@dataclass(frozen=True, slots=True)
class TreePlace:
    """A task's place in its tree, with the tree's budget and cost."""

    master: TaskId
    depth: int
    budget_usd: float | None
    spent_usd: float


async def place(conn: Connection, task: TaskId) -> TreePlace:
    """The place of a task, which must exist."""
    sql = """select t.master_id as master, t.depth, m.budget_usd,
                    (select coalesce(sum(s.cost_usd), 0) from tasks n join task_steps s on s.task_id = n.id
                     where n.master_id = t.master_id) as spent_usd
             from tasks t join tasks m on m.id = t.master_id where t.id = $1"""
    return await fetch_one(conn, TreePlace, sql, task)


async def raise_budget(conn: Connection, master: TaskId, usd: float) -> None:
    """Allow the tree so much more."""
    await conn.execute("update tasks set budget_usd = budget_usd + $2 where id = $1", master, usd)


async def save(conn: Connection, run: Claim, data: JsonObject) -> None:
    """Keep what a run wants to find again; the caller holds its task. Fields of before stay."""
    sql = "update tasks set intermediate_data = coalesce(intermediate_data, '{}') || $2 where id = $1"
    await conn.execute(sql, run.id, data)


async def keep_files(conn: Connection, run: Claim, paths: Sequence[str]) -> None:
    """Which files the task of a run has; those of a run that has lost it don't count."""
    sql = "update tasks set storage_paths = $3 where id = $1 and token = $2 and storage_paths <> $3"
    await conn.execute(sql, run.id, run.token, paths)


async def hand_off(conn: Connection, run: Claim, agent: str) -> None:
    """Give the task to another agent, and note it in the trace; the caller holds the task."""
    await conn.execute("update tasks set agent = $2 where id = $1", run.id, agent)
    await steps.note(conn, run.id, run.principal_id, "hand-off", f"{run.agent} > {agent}")


async def hand_offs(conn: Connection, task: TaskId) -> int:
    """How often the task has changed hands."""
    return int(await conn.fetchval("select count(*) from task_steps where task_id = $1 and kind = 'hand-off'", task))


async def resume(conn: Connection, task: TaskId, *, tree: bool) -> None:
    """Make a task that waits for a person pending again, with all attempts, or all such tasks of its `tree`."""
    sql = """update tasks set status = 'pending', run_at = now(), attempts = 0, updated_at = now()
             where status = 'needs_human_review'
               and (id = $1 or $2 and master_id = (select master_id from tasks where id = $1))"""
    await conn.execute(sql, task, tree)
