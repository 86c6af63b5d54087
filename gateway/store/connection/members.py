"""Connections of members' tools: a role of its own logs in, and the gateway's seal says for whom."""

import asyncio
import hashlib
import time
from dataclasses import dataclass

import asyncpg
import structlog
from asyncpg.exceptions import PostgresError
from asyncpg.pool import PoolConnectionProxy

from gateway.domain.ids import PrincipalId
from gateway.store.connection.connecting import ANSWER_WITHIN, SEARCH_PATH, open_pool
from gateway.store.connection.dsn import Dsn, as_user
from gateway.store.embedded.cluster import MEMBERS

CONNECTIONS = 2
TOKEN_SECONDS = 300
NO_LOGIN = (
    f"members' tools cannot log in as {MEMBERS}, so they work on the gateway's own login, which a hijacked statement "
    "could use"
)
LET_IT_LOG_IN = (
    f"let an administrator run once: alter role {MEMBERS} login password '<password>'; then add "
    "member_password=<password> to the options of database.url"
)
_REFUSED = ("08P01", "28", "3D", "42501", "XX")
"""SQLSTATE beginnings of a login that is not to be had; poolers have their own for users they do not know."""
_KEY = "select key, extract(epoch from clock_timestamp())::float8 as now from supaclaw.member_keys"
_LOGIN = """select theirs.rolcanlogin as able, ours.rolcreaterole as may from pg_roles theirs, pg_roles ours
            where theirs.rolname = $1 and ours.rolname = current_user"""
_BIND = """select set_config('role', $1, true), set_config('search_path', $2, true),
                  set_config('supaclaw.member', $3, true)"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Way:
    """How members' tools reach the database. `role` is taken on in each transaction; a login of its own needs none."""

    pool: asyncpg.Pool
    role: str
    key: bytes
    ahead: float
    """Seconds of the server's clock."""


class Members:
    """The way is found at the first use: the login of members, else the connections of `own` with the role taken on."""

    def __init__(self, target: Dsn, own: asyncpg.Pool) -> None:
        self.target, self._own = target, own
        self._opening = asyncio.Lock()
        self._way: _Way | None = None

    async def pool(self) -> asyncpg.Pool:
        """Where to take a connection for `bind`."""
        return (await self._found()).pool

    async def bind(self, connection: PoolConnectionProxy, principal: PrincipalId) -> None:
        """Show this principal's rows, and no others, for the rest of the transaction."""
        way = await self._found()
        # Temporary tables of others' making come last.
        path, token = f"{SEARCH_PATH}, pg_temp", sealed(way.key, principal, time.time() + way.ahead + TOKEN_SECONDS)
        await connection.execute(_BIND, way.role, path, token)

    async def log_in(self) -> bool:
        """Whether they have a login of their own, or will at the first use. Changes nothing."""
        async with self._own.acquire(timeout=ANSWER_WITHIN) as connection:
            row = await connection.fetchrow(_LOGIN, MEMBERS)
        if row is None or not row["able"]:
            return row is not None and bool(row["may"])
        return (await self._found()).pool is not self._own

    async def close(self) -> None:
        """End the connections that are not `own`."""
        if self._way is not None and self._way.pool is not self._own:
            await self._way.pool.close()

    async def _found(self) -> _Way:
        async with self._opening:
            if self._way is None:
                async with self._own.acquire(timeout=ANSWER_WITHIN) as connection:
                    row = await connection.fetchrow(_KEY)
                    assert row is not None, "the migration made one"
                    pool = await self._logged_in(connection, row["key"])
                self._way = _Way(pool or self._own, "none" if pool else MEMBERS, row["key"], row["now"] - time.time())
            return self._way

    async def _logged_in(self, connection: PoolConnectionProxy, key: bytes) -> asyncpg.Pool | None:
        try:
            password = self.target.member_password or await _password(connection, key)
            return await open_pool(as_user(self.target, MEMBERS, password), CONNECTIONS, cleared=True)
        except PostgresError as error:
            if not str(error.sqlstate).startswith(_REFUSED):
                raise
            log.warning("members.no_login", error=str(error), effect=NO_LOGIN, hint=LET_IT_LOG_IN)
            return None


def sealed(key: bytes, principal: PrincipalId, until: float) -> str:
    """The token that `supaclaw.member()` believes until that second of the server's clock."""
    said = principal.bytes + int(until).to_bytes(8)
    return (said + hashlib.sha256(key + hashlib.sha256(key + said).digest()).digest()).hex()


async def _password(connection: PoolConnectionProxy, key: bytes) -> str:
    """Ours for the role, which has it from now on unless it could log in before."""
    password = hashlib.sha256(b"password" + key).hexdigest()
    if not await connection.fetchval("select rolcanlogin from pg_roles where rolname = $1", MEMBERS):
        await connection.execute(f"alter role {MEMBERS} login password '{password}'")
    return password
