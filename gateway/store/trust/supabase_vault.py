"""Supabase Vault: an extension that keeps values encrypted, under a key that its host holds outside the database."""

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from gateway.domain.errors import OwnerMustAct
from gateway.store.connection.pool import Connection

NO_VAULT = (
    "the database has no Supabase Vault that this user may use; enable the extension supabase_vault there, or set "
    'database.secrets to "own"'
)
_NONE = (asyncpg.SyntaxOrAccessError, asyncpg.InvalidSchemaNameError)
"""Also where this user may not."""


async def put(tx: Connection, name: str, text: str) -> UUID:
    """Keep `text` in place of what had this name; raises `OwnerMustAct` where there is no vault."""
    try:
        async with tx.transaction():
            if known := await tx.fetchval("select id from vault.secrets where name = $1", name):
                await tx.execute("select vault.update_secret($1, $2)", known, text)
                return UUID(str(known))
            return UUID(str(await tx.fetchval("select vault.create_secret($1, $2, 'kept for SupaClaw')", text, name)))
    except _NONE as error:
        raise OwnerMustAct(NO_VAULT) from error


async def texts(conn: Connection, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Those that are there; raises `OwnerMustAct` where there is no vault."""
    try:
        async with conn.transaction():
            sql = "select id, decrypted_secret from vault.decrypted_secrets where id = any($1)"
            return {row["id"]: row["decrypted_secret"] for row in await conn.fetch(sql, ids)}
    except _NONE as error:
        raise OwnerMustAct(NO_VAULT) from error


async def remove(tx: Connection, id: UUID) -> None:
    """Drop it, if it is there."""
    if await tx.fetchval("select to_regclass('vault.secrets') is not null"):
        await tx.execute("delete from vault.secrets where id = $1", id)
