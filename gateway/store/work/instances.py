"""Instances: who works on this database, which leases each holds, and what lies on whose machine."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from gateway.domain.ids import InstanceId
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_value, statement
from gateway.store.migrate import known_schema

LEASE_SECONDS = 8.0
RENEW_SECONDS = 2.0
"""Interval at which an instance renews its life's lease and its channels'."""
LOOK_SECONDS = 1.0
"""How often others look whether they are free: a death is noticed after 9 seconds at most, and taken over within 15."""
FOLLOWED_PREFIX = "supaclaw:"
"""Prefix of leases that are notification channels of traces."""


def life_lease(instance: InstanceId) -> str:
    """The lease by which an instance shows that it lives."""
    return f"instance {instance}"


async def take_leases(conn: Connection, names: Collection[str], holder: InstanceId, seconds: float) -> set[str]:
    """Take or renew leases; returns those that nobody else holds."""
    sql = """insert into leases (name, holder, expires_at)
             select name, $2, now() + $3 from unnest($1::text[]) name order by name
             on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at
             where leases.holder = excluded.holder or leases.expires_at < now() returning name"""
    return {row["name"] for row in await conn.fetch(sql, list(names), holder, timedelta(seconds=seconds))}


async def take_lease(conn: Connection, name: str, holder: InstanceId, seconds: float) -> bool:
    """Take or renew a lease; False while somebody else holds it."""
    return bool(await take_leases(conn, [name], holder, seconds))


async def drop_lease(conn: Connection, name: str, holder: InstanceId) -> None:
    """Let a lease go."""
    await conn.execute("delete from leases where name = $1 and holder = $2", name, holder)


async def lease_is_taken(conn: Connection, name: str, me: InstanceId) -> bool:
    """Whether somebody else holds a lease."""
    sql = "select exists (select from leases where name = $1 and holder <> $2 and expires_at > now())"
    return bool(await conn.fetchval(sql, name, me))


async def oldest_elsewhere(conn: Connection, me: InstanceId) -> int:
    """The schema that the oldest program elsewhere knows; 0 if none runs, or one doesn't say."""
    sql = """select min(coalesce(i.schema, 0))
             from leases l left join instances i on i.id = l.holder where l.holder <> $1 and l.expires_at > now()"""
    return await fetch_value(conn, int, sql, me) or 0


async def work_elsewhere(conn: Connection, me: InstanceId) -> bool:
    """Whether another instance holds a lease, on a name or on a task."""
    sql = """select exists (select from leases where holder <> $1 and expires_at > now())
               or exists (select from tasks where status = 'running' and worker <> $1 and lease_until > now())"""
    return bool(await conn.fetchval(sql, me))


WAITS = "; what it accepted while the database was unavailable, if anything, waits in its files until it starts again"
Kind = Literal["gateway", "worker"]
State = Literal["running", "stopped", "dead"]


@dataclass(frozen=True, slots=True)
class Instance:
    """One process that works on this database, or did; `seen_at` is when it last showed that it lives."""

    id: InstanceId
    name: str
    kind: Kind
    state: State
    started_at: datetime
    seen_at: datetime
    channels: tuple[str, ...]
    """Those that it holds open."""
    homes: tuple[str, ...]
    """Things that only its machine's files have."""
    running: int
    """Tasks."""

    @property
    def told(self) -> str:
        """How it is, in words."""
        if self.state == "dead":
            kept = "" if self.kind == "worker" else WAITS
            return f"{self.kind}, dead since {self.seen_at:%Y-%m-%d %H:%M:%S} UTC{kept}"
        holds = [*self.channels, *(f"{thing} (files)" for thing in self.homes)]
        tasks = [f"{self.running} running"] if self.running else []
        return f"{self.kind}, {self.state}{': ' if holds or tasks else ''}{', '.join([*holds, *tasks])}"


_TIDY = """
with over as (select name, holder from leases where name like 'instance %'
    and expires_at < now() - interval '1 day' * case when exists (
      select from instances where id = holder and kind = 'gateway') then 30 else 1 end),
  gone as (delete from instances i using over where i.id = over.holder
    and not exists (select from homes where instance_id = i.id) returning i.id)
delete from leases l using over left join gone on gone.id = over.holder
where l.name = over.name and (gone.id is not null or not exists (select from instances where id = over.holder))"""


async def enter(conn: Connection, instance: InstanceId, name: str, kind: Kind) -> None:
    """Register a started instance; forget long-dead instances without files of their own, and expired followers."""
    await conn.execute(_TIDY)
    await conn.execute("delete from leases where starts_with(name, $1) and expires_at < now()", FOLLOWED_PREFIX)
    sql = """insert into instances (id, name, kind, schema) values ($1, $2, $3, $4)
             on conflict (id) do update set name = $2, kind = $3, schema = $4, started_at = now(), stopped_at = null"""
    await conn.execute(sql, instance, name, kind, known_schema())


async def leave(conn: Connection, instance: InstanceId) -> None:
    """Record an orderly stop; forget the instance unless its machine has files of its own."""
    await conn.execute("update instances set stopped_at = now() where id = $1", instance)
    sql = "delete from instances where id = $1 and not exists (select from homes where instance_id = $1)"
    await conn.execute(sql, instance)


async def every(conn: Connection) -> list[Instance]:
    """All of them, those that live first."""
    return await fetch_all(conn, Instance, statement("work/instances"))


async def settle(conn: Connection, thing: str, instance: InstanceId, *, gone: float | None = None) -> str:
    """Make this the machine whose files have a thing, if none is; returns the name of the other one that is, else "".

    A machine that has been away for `gone` seconds is one no more; None: it stays that until it is forgotten.
    """
    sql = """insert into homes (thing, instance_id) values ($1, $2) on conflict (thing) do update
             set instance_id = $2 where homes.instance_id <> $2 and not exists (
               select from instances i left join leases l on l.name = concat('instance ', i.id)
               where i.id = homes.instance_id
                 and (greatest(l.expires_at, i.stopped_at, i.started_at) > now() - $3::interval) is not false)"""
    await conn.execute(sql, thing, instance, None if gone is None else timedelta(seconds=gone))
    return await home(conn, thing, instance) or ""


async def home(conn: Connection, thing: str, me: InstanceId) -> str | None:
    """The name of the machine that has a thing: "" if that is this one, None if it is nobody's."""
    sql = """select case when i.id = $2 then '' else i.name end
             from homes h join instances i on i.id = h.instance_id where h.thing = $1"""
    return await fetch_value(conn, str, sql, thing, me)


async def holder(conn: Connection, lease: str) -> str | None:
    """The name of the machine that holds a lease."""
    sql = "select i.name from leases l join instances i on i.id = l.holder where l.name = $1 and l.expires_at > now()"
    return await fetch_value(conn, str, sql, lease)


async def forget(conn: Connection, name: str) -> int:
    """Forget stopped machines of this name permanently, with the files that only they had; returns how many."""
    sql = """with gone as (delete from instances i where name = $1 and not exists (
               select from leases where name = concat('instance ', i.id) and expires_at > now()) returning id)
             select count(*) from gone"""
    return int(await conn.fetchval(sql, name))
