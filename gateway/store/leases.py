"""Leases on names: who may be the gateway of this database, by the database's own clock."""

from datetime import timedelta

from gateway.domain.ids import InstanceId
from gateway.store.pool import Connection

FOLLOWED = "supaclaw:"
"""What the names begin with that are channels on which somebody is told of steps."""


async def take(conn: Connection, name: str, holder: InstanceId, seconds: float) -> bool:
    """Take or renew a lease; False while somebody else holds it."""
    sql = """insert into leases (name, holder, expires_at) values ($1, $2, now() + $3)
             on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at
             where leases.holder = excluded.holder or leases.expires_at < now() returning true"""
    return bool(await conn.fetchval(sql, name, holder, timedelta(seconds=seconds)))


async def drop(conn: Connection, name: str, holder: InstanceId) -> None:
    """Let a lease go."""
    await conn.execute("delete from leases where name = $1 and holder = $2", name, holder)


async def work_elsewhere(conn: Connection, me: InstanceId) -> bool:
    """Whether another instance holds a lease, on a name or on a task."""
    sql = """select exists (select from leases where holder <> $1 and expires_at > now())
               or exists (select from tasks where status = 'running' and worker <> $1 and lease_until > now())"""
    return bool(await conn.fetchval(sql, me))
