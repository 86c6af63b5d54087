"""Sealed values, by name and owner, which nothing here can open; and Supabase Vault, which keeps values for us."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from datetime import datetime
from uuid import UUID

import asyncpg
from asyncpg import Record

from gateway.domain.errors import OwnerMustAct, raising
from gateway.domain.ids import PrincipalId
from gateway.secrets.encryption import Envelope
from gateway.secrets.facts import Binding, Facts
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first

CONFIRMED = "recovery key"


@dataclass(frozen=True, slots=True)
class SecretRow:
    """One sealed value."""

    id: int
    facts: Facts
    envelope: Envelope = field(repr=False)
    created_at: datetime
    changed_at: datetime
    last_used_at: datetime | None


async def hold_keys(tx: Connection, *, alone: bool = False) -> None:
    """Until the transaction ends nobody retires a master key; `alone`, nobody seals either."""
    shared = "" if alone else "_shared"
    await tx.execute(f"select pg_advisory_xact_lock{shared}(hashtext('supaclaw.secrets'))")


async def list_all(conn: Connection) -> list[SecretRow]:
    """Everybody's, by name, the shared one first."""
    return await fetch_all(conn, _row, "select * from secrets order by name, shared desc, principal_id")


async def get(conn: Connection, principal: PrincipalId, name: str, *, shared: bool) -> SecretRow | None:
    """One of them, held until the transaction ends."""
    sql = "select * from secrets where principal_id = $1 and name = $2 and shared = $3 for update"
    return await fetch_first(conn, _row, sql, principal, name, shared)


async def put(conn: Connection, facts: Facts, envelope: Envelope, *, changed: bool = True) -> None:
    """Store it in place of the version before; `changed` tells whether the value has."""
    sql = """insert into secrets as old
               (principal_id, shared, name, version, key_id, wrapped, sealed, hosts, tools, place)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             on conflict (principal_id, shared, name) do update
             set version = excluded.version, key_id = excluded.key_id, wrapped = excluded.wrapped,
               sealed = excluded.sealed, hosts = excluded.hosts, tools = excluded.tools, place = excluded.place,
               changed_at = case when $11 then now() else old.changed_at end"""
    whose = (facts.principal, facts.shared, facts.name, facts.version)
    bound = (list(facts.binding.hosts), list(facts.binding.tools), facts.binding.place)
    await conn.execute(sql, *whose, *astuple(envelope), *bound, changed)


async def remove(conn: Connection, principal: PrincipalId, name: str, *, shared: bool) -> bool:
    """Whether there was one."""
    sql = "delete from secrets where principal_id = $1 and name = $2 and shared = $3"
    return str(await conn.execute(sql, principal, name, shared)) != "DELETE 0"


async def list_under_other_keys(conn: Connection, key_id: str, limit: int) -> list[SecretRow]:
    """Some that another master key wraps, held until the transaction ends."""
    sql = "select * from secrets where key_id <> $1 and wrapped <> '' order by id limit $2 for update"
    return await fetch_all(conn, _row, sql, key_id, limit)


async def rewrap(conn: Connection, row: SecretRow, envelope: Envelope) -> None:
    """The same value is under another master key."""
    sql = "update secrets set key_id = $2, wrapped = $3 where id = $1"
    await conn.execute(sql, row.id, envelope.key_id, envelope.wrapped)


async def mark_used(conn: Connection, ids: Sequence[int]) -> None:
    """Note, once a minute at most, that these were put into a request."""
    sql = """update secrets set last_used_at = now()
             where id = any($1) and coalesce(last_used_at, '-infinity') < now() - interval '1 minute'"""
    await conn.execute(sql, list(ids))


async def key_ids(conn: Connection) -> list[str]:
    """The master keys that something is under."""
    sql = "select distinct key_id from secrets where wrapped <> '' order by key_id"  # another vault needs none of them
    return [row["key_id"] for row in await conn.fetch(sql)]


async def confirm_key(conn: Connection, key_id: str) -> None:
    """Its owner has kept this master key elsewhere."""
    sql = """insert into meta (key, value) values ($1, to_jsonb($2::text))
             on conflict (key) do update set value = excluded.value"""
    await conn.execute(sql, CONFIRMED, key_id)


async def key_confirmed(conn: Connection, key_id: str) -> bool:
    """Whether its owner has."""
    return bool(await conn.fetchval("select value = to_jsonb($2::text) from meta where key = $1", CONFIRMED, key_id))


def _row(row: Record) -> SecretRow:
    binding = Binding(tuple(row["hosts"]), tuple(row["tools"]), row["place"])
    facts = Facts(row["principal_id"], row["shared"], row["name"], row["version"], binding)
    envelope = Envelope(row["key_id"], row["wrapped"], row["sealed"])
    return SecretRow(row["id"], facts, envelope, row["created_at"], row["changed_at"], row["last_used_at"])


NO_VAULT = (
    "the database has no Supabase Vault that this user may use; enable the extension supabase_vault there, or set "
    'database.secrets to "own"'
)
_NO_VAULT_ERRORS = (asyncpg.SyntaxOrAccessError, asyncpg.InvalidSchemaNameError)
"""Also where this user may not."""


async def put_in_vault(tx: Connection, name: str, text: str) -> UUID:
    """Keep `text` in place of what had this name; raises `OwnerMustAct` where there is no vault."""
    with raising(OwnerMustAct(NO_VAULT), *_NO_VAULT_ERRORS):
        async with tx.transaction():
            if known := await tx.fetchval("select id from vault.secrets where name = $1", name):
                await tx.execute("select vault.update_secret($1, $2)", known, text)
                return UUID(str(known))
            return UUID(str(await tx.fetchval("select vault.create_secret($1, $2, 'kept for SupaClaw')", text, name)))


async def texts_in_vault(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Those that are there; raises `OwnerMustAct` where there is no vault."""
    with raising(OwnerMustAct(NO_VAULT), *_NO_VAULT_ERRORS):
        async with conn.transaction():
            sql = "select id, decrypted_secret from vault.decrypted_secrets where id = any($1)"
            return {row["id"]: row["decrypted_secret"] for row in await conn.fetch(sql, ids)}


async def remove_from_vault(tx: Connection, id: UUID) -> None:
    """Drop it, if it is there."""
    if await tx.fetchval("select to_regclass('vault.secrets') is not null"):
        await tx.execute("delete from vault.secrets where id = $1", id)
