"""Triggers: what other programs sent to set the agent to work."""

from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from gateway.domain.ids import PrincipalId, SessionId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text.texts import key_digest
from gateway.domain.work.tasks import Status
from gateway.store.connection.pool import Connection, lock_name
from gateway.store.connection.rows import fetch_all, fetch_first

DEDUPE = "trigger:"
"""Prefix of the `dedupe` of a trigger's task."""


@dataclass(frozen=True, slots=True)
class TriggerRow:
    """A trigger's task and its status; `digest` is of the request."""

    digest: str
    task_id: TaskId
    status: Status


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A source with a token of its own; `triggers` counts what was ever sent for it, by whichever token."""

    source: str
    created_at: datetime
    last_used_at: datetime | None
    triggers: int


async def reserve(conn: Connection, source: str, key: str) -> None:
    """Let nobody else use this idempotency key until the transaction ends."""
    await lock_name(conn, "\n".join(("supaclaw.trigger", source, key)))


async def by_key(conn: Connection, source: str, key: str) -> TriggerRow | None:
    """The trigger with this idempotency key; None if there is none."""
    sql = """select g.digest, g.task_id, t.status from triggers g join tasks t on t.id = g.task_id
             where g.source = $1 and g.idempotency_key in ($2, $3)"""
    # Rows of earlier versions have the key itself.
    return await fetch_first(conn, TriggerRow, sql, source, key_digest(key), key)


async def add(
    conn: Connection, principal: PrincipalId, source: str, task: TaskId, *, account: str, key: str | None, digest: str
) -> None:
    """Note what a task was queued for; the caller has reserved the key."""
    sql = """insert into triggers (principal_id, source, account, idempotency_key, digest, task_id)
             values ($1, $2, $3, $4, $5, $6)"""
    await conn.execute(sql, principal, source, account, key and key_digest(key), digest, task)


async def live(conn: Connection, most: int) -> int:
    """How many triggers' tasks are not over, counted up to `most`; it stays so until the transaction ends."""
    await lock_name(conn, "supaclaw.triggers")
    sql = """select count(*) from (
               select from tasks where dedupe like $1 || '%' and status not in ('completed', 'failed', 'cancelled')
               limit $2) each"""
    return int(await conn.fetchval(sql, DEDUPE, most))


async def conversation(conn: Connection, principal: PrincipalId, name: str, label: Label) -> SessionId:
    """The open session of that name, held until the transaction ends; begun if there is none."""
    sql = """insert into sessions (id, principal_id, label, name, unattended) values ($1, $2, $3, $4, true)
             on conflict (principal_id, name) where ended_at is null
             do update set label = greatest(sessions.label, excluded.label) returning id"""
    return SessionId(await conn.fetchval(sql, uuid4(), principal, label, name))


async def sent_by(conn: Connection, task: TaskId, account: str, source: str | None) -> bool:
    """Whether a task was triggered with this credential, or for this source."""
    sql = "select exists (select from triggers where task_id = $1 and (account = $2 or source = $3))"
    return bool(await conn.fetchval(sql, task, account, source))


async def registered(conn: Connection) -> list[SourceRow]:
    """Every source with a live token of its own, by name."""
    sql = """select k.source, k.created_at, k.last_used_at,
                    (select count(*)::int from triggers g where g.source = k.source) as triggers
             from api_tokens k where k.source is not null and k.revoked_at is null order by k.source"""
    return await fetch_all(conn, SourceRow, sql)


async def failed_this_hour(conn: Connection, principal: PrincipalId, source: str, but: TaskId) -> bool:
    """Whether another of the source's triggers has failed in this hour of the clock."""
    sql = """select exists (
               select from triggers g join tasks t on t.id = g.task_id
               where g.principal_id = $1 and g.source = $2 and t.id <> $3 and t.status = 'failed'
                 and g.created_at > now() - interval '1 day' and t.updated_at >= date_trunc('hour', now()))"""
    return bool(await conn.fetchval(sql, principal, source, but))
