"""To-do lists of runs: one row each, as long as the run lives."""

from dataclasses import asdict

from gateway.domain.ids import PrincipalId, TaskId
from gateway.domain.work.todo_lists import TodoList
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first


async def get(conn: Connection, task: TaskId) -> TodoList | None:
    """The list of a run."""
    return await fetch_first(conn, TodoList, "select *, task_id as task from todo_lists where task_id = $1", task)


async def put(conn: Connection, principal: PrincipalId, todo: TodoList) -> None:
    """Store a list in place of the run's one; its label never falls."""
    sql = """insert into todo_lists (principal_id, task_id, title, steps, trivial, label, ordinal)
             values ($1, $2, $3, $4, $5, $6, $7)
             on conflict (task_id) do update set title = excluded.title, steps = excluded.steps,
               trivial = excluded.trivial, label = greatest(todo_lists.label, excluded.label),
               ordinal = excluded.ordinal, updated_at = now()"""
    await conn.execute(sql, principal, *asdict(todo).values())


async def live(conn: Connection, principal: PrincipalId) -> list[TodoList]:
    """Those of runs that aren't over, in order of their start."""
    sql = """select p.*, p.task_id as task from todo_lists p join tasks t on t.id = p.task_id
             where p.principal_id = $1 and t.status not in ('completed', 'failed', 'cancelled') order by t.seq"""
    return await fetch_all(conn, TodoList, sql, principal)


async def drop_finished(conn: Connection) -> set[PrincipalId]:
    """Delete the lists of runs that are over; returns whose they were."""
    rows = await conn.fetch(
        """delete from todo_lists p using tasks t where t.id = p.task_id
             and t.status in ('completed', 'failed', 'cancelled') returning p.principal_id"""
    )
    return {PrincipalId(row["principal_id"]) for row in rows}


async def any_left(conn: Connection) -> bool:
    """Whether there is a list at all."""
    return bool(await conn.fetchval("select exists (select from todo_lists)"))
