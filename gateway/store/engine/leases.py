"""Leases on names, by the database's own clock: who lives, and who has what only one may have at a time."""

from collections.abc import Collection
from datetime import timedelta

from gateway.domain.ids import InstanceId
from gateway.store.connection.pool import Connection

LEASE_SECONDS = 8.0
RENEW_SECONDS = 2.0
"""Of an instance's life and of the channels that it holds."""
LOOK_SECONDS = 1.0
"""How often others look whether they are free: a death is noticed after 9 seconds at most, and taken over within 15."""
FOLLOWED = "supaclaw:"
"""What the names begin with that are channels on which somebody is told of steps."""


def life(instance: InstanceId) -> str:
    """The lease by which an instance shows that it lives."""
    return f"instance {instance}"


async def take_all(conn: Connection, names: Collection[str], holder: InstanceId, seconds: float) -> set[str]:
    """Take or renew leases; returns those that nobody else holds."""
    sql = """insert into leases (name, holder, expires_at)
             select name, $2, now() + $3 from unnest($1::text[]) name order by name
             on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at
             where leases.holder = excluded.holder or leases.expires_at < now() returning name"""
    return {row["name"] for row in await conn.fetch(sql, list(names), holder, timedelta(seconds=seconds))}


async def take(conn: Connection, name: str, holder: InstanceId, seconds: float) -> bool:
    """Take or renew a lease; False while somebody else holds it."""
    return bool(await take_all(conn, [name], holder, seconds))


async def drop(conn: Connection, name: str, holder: InstanceId) -> None:
    """Let a lease go."""
    await conn.execute("delete from leases where name = $1 and holder = $2", name, holder)


async def taken(conn: Connection, name: str, me: InstanceId) -> bool:
    """Whether somebody else holds a lease."""
    sql = "select exists (select from leases where name = $1 and holder <> $2 and expires_at > now())"
    return bool(await conn.fetchval(sql, name, me))


async def work_elsewhere(conn: Connection, me: InstanceId) -> bool:
    """Whether another instance holds a lease, on a name or on a task."""
    sql = """select exists (select from leases where holder <> $1 and expires_at > now())
               or exists (select from tasks where status = 'running' and worker <> $1 and lease_until > now())"""
    return bool(await conn.fetchval(sql, me))
