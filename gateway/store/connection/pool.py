"""The database as the rest of the store sees it: transactions on pooled connections.

Connections of members' tools use a role of its own, and the gateway's seal says for whom."""

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self, TypeAlias, TypeVar

import asyncpg
import structlog
from asyncpg.exceptions import PostgresError
from asyncpg.pool import PoolConnectionProxy

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.store.connection.dsn import (
    ANSWER_SECONDS,
    SEARCH_PATH,
    UNREADABLE,
    Dsn,
    as_user,
    ends_transactions,
    open_pool,
    parse_dsn,
    transaction_settings,
)
from gateway.store.embedded.cluster import MEMBERS
from gateway.store.errors import Conflict, reaching, translated

MEMBER_CONNECTIONS = 2
TOKEN_SECONDS = 300
NO_MEMBER_LOGIN = (
    f"members' tools cannot log in as {MEMBERS}, so they work on the gateway's own login, which a hijacked statement "
    "could use"
)
ALLOW_MEMBER_LOGIN = (
    f"let an administrator run once: alter role {MEMBERS} login password '<password>'; then add "
    "member_password=<password> to the options of database.url"
)
_LOGIN_REFUSED = ("08P01", "28", "3D", "42501", "XX")
"""SQLSTATE beginnings of a login that is not to be had; poolers have their own for users they do not know."""
_MEMBER_KEY = "select key, extract(epoch from clock_timestamp())::float8 as now from supaclaw.member_keys"
_MEMBER_LOGIN = """select theirs.rolcanlogin as able, ours.rolcreaterole as may from pg_roles theirs, pg_roles ours
            where theirs.rolname = $1 and ours.rolname = current_user"""
_BIND = """select set_config('role', $1, true), set_config('search_path', $2, true),
                  set_config('supaclaw.member', $3, true)"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _MemberAccess:
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
        self._way: _MemberAccess | None = None

    async def pool(self) -> asyncpg.Pool:
        """The pool to take a connection for `bind` from."""
        return (await self._found()).pool

    async def bind(self, connection: PoolConnectionProxy, principal: PrincipalId) -> None:
        """Show this principal's rows, and no others, for the rest of the transaction."""
        way = await self._found()
        token = member_token(way.key, principal, time.time() + way.ahead + TOKEN_SECONDS)
        # Temporary tables of others' making come last.
        await connection.execute(_BIND, way.role, f"{SEARCH_PATH}, pg_temp", token)

    async def log_in(self) -> bool:
        """Whether they have a login of their own, or will at the first use. Changes nothing."""
        async with self._own.acquire(timeout=ANSWER_SECONDS) as connection:
            row = await connection.fetchrow(_MEMBER_LOGIN, MEMBERS)
        if row is None or not row["able"]:
            return row is not None and bool(row["may"])
        return (await self._found()).pool is not self._own

    async def close(self) -> None:
        """End the connections that are not `own`."""
        if self._way is not None and self._way.pool is not self._own:
            await self._way.pool.close()

    async def _found(self) -> _MemberAccess:
        async with self._opening:
            if self._way is None:
                async with self._own.acquire(timeout=ANSWER_SECONDS) as connection:
                    row = await connection.fetchrow(_MEMBER_KEY)
                    assert row is not None, "the migration made one"
                    pool = await self._logged_in(connection, row["key"])
                self._way = _MemberAccess(
                    pool or self._own, "none" if pool else MEMBERS, row["key"], row["now"] - time.time()
                )
            return self._way

    async def _logged_in(self, connection: PoolConnectionProxy, key: bytes) -> asyncpg.Pool | None:
        try:
            password = self.target.member_password or await _member_password(connection, key)
            return await open_pool(as_user(self.target, MEMBERS, password), MEMBER_CONNECTIONS, cleared=True)
        except PostgresError as error:
            if not str(error.sqlstate).startswith(_LOGIN_REFUSED):
                raise
            log.warning("members.no_login", error=str(error), effect=NO_MEMBER_LOGIN, hint=ALLOW_MEMBER_LOGIN)
            return None


def member_token(key: bytes, principal: PrincipalId, until: float) -> str:
    """The token that `supaclaw.member()` believes until that second of the server's clock."""
    said = principal.bytes + int(until).to_bytes(8)
    return (said + hashlib.sha256(key + hashlib.sha256(key + said).digest()).digest()).hex()


async def _member_password(connection: PoolConnectionProxy, key: bytes) -> str:
    """Ours for the role, which has it from now on unless it could log in before."""
    password = hashlib.sha256(b"password" + key).hexdigest()
    if not await connection.fetchval("select rolcanlogin from pg_roles where rolname = $1", MEMBERS):
        await connection.execute(f"alter role {MEMBERS} login password '{password}'")
    return password


Connection: TypeAlias = PoolConnectionProxy
"""A connection held for the length of one transaction or read."""

Result = TypeVar("Result")

URGENT_CONNECTIONS = 2
is_urgent = ContextVar("is_urgent", default=False)
"""Set in a task that may use the connections that are left to urgent work."""

_CLOSE_WITHIN = 5.0
_TRIES = 3
_OPTION_REFUSED = (
    asyncpg.UndefinedObjectError,
    asyncpg.CantChangeRuntimeParamError,
    asyncpg.InvalidParameterValueError,
)
"""Errors of a server that doesn't know a setting, or not with this value."""


class Database:
    """Pooled connections to one database, closed by `async with`; foreign errors are translated on the way out."""

    def __init__(
        self, pool: asyncpg.Pool, members: Members, *, direct: bool, principal: PrincipalId | None = None
    ) -> None:
        self._pool = pool
        self._ordinary = asyncio.Semaphore(max(1, pool.get_max_size() - URGENT_CONNECTIONS))
        self._members = members
        self._principal = principal
        self.direct = direct
        """False behind a transaction pooler: notifications do not arrive, poll instead."""
        self.before: Callable[[], None] = lambda: None
        """Called before a connection is used."""

    @classmethod
    async def connect(cls, dsn: str, *, size: int = 10) -> Self:
        """Open at most `size` connections; raises `DatabaseDown`, and `OwnerMustAct` if the address cannot work."""
        target = parse_dsn(dsn)
        with reaching():
            try:
                pool = await open_pool(target, size)
            except asyncpg.ClientConfigurationError as error:
                raise OwnerMustAct(f"The database URL cannot be used: {error}") from error
            except _OPTION_REFUSED as error:
                raise OwnerMustAct(f"The server refuses an option of the database URL: {error}; remove it") from error
            except UnicodeError:  # of the server's making
                raise
            except ValueError:  # its text quotes the address, of which a piece may be the password
                raise OwnerMustAct(UNREADABLE) from None
        return cls(pool, Members(target, pool), direct=target.direct)

    def bound(self, principal: PrincipalId) -> "Database":
        """The same for one member, on connections of members: whatever runs here, it reaches nobody else's rows."""
        bound = Database(self._pool, self._members, direct=self.direct, principal=principal)
        bound.before = self.before
        return bound

    async def apart(self) -> "Database":
        """The same by one connection of its own, for instance in another event loop."""
        with reaching():
            pool = await open_pool(self._members.target, 1)
        return Database(pool, Members(self._members.target, pool), direct=self.direct)

    async def members_log_in(self) -> bool:
        """Whether members' tools have a login of their own, or will at their first use."""
        with reaching():
            return await self._members.log_in()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for single reads; nothing ties one statement to the next."""
        if self.direct and self._principal is None:
            async with self._held() as connection:
                yield connection
        else:
            async with self.transaction() as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One transaction: committed when the block ends, rolled back when it raises."""
        async with self._held() as connection, connection.transaction():
            with reaching():
                if not self.direct:
                    await connection.execute(transaction_settings(connection))
                if self._principal is not None:
                    await self._members.bind(connection, self._principal)
            yield connection

    async def read(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run `work`, which only reads, outside of a transaction."""
        async with self.connection() as connection:
            return await work(connection)

    async def run(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run `work` in one transaction, again when it met a deadlock; it must be repeatable up to its commit."""
        return await self._repeated(self.transaction, work)

    async def run_alone(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """`run` for a single statement, which needs neither `begin` nor `commit` around it."""
        return await self._repeated(self.connection, work)

    async def _repeated(
        self,
        opened: Callable[[], AbstractAsyncContextManager[Connection]],
        work: Callable[[Connection], Awaitable[Result]],
    ) -> Result:
        failures = 0
        while True:
            try:
                async with opened() as connection:
                    return await work(connection)
            except Conflict:
                failures += 1
                if failures == _TRIES:
                    raise
            await asyncio.sleep(random.uniform(0.0, 0.05))

    async def alone(self, statement: str, within: float) -> None:
        """Run what must be in no transaction, such as `vacuum`, for so many seconds."""
        async with self._held() as connection:
            await connection.execute(statement, timeout=within)

    async def close(self) -> None:
        """Let running transactions end, but not for long."""
        try:
            async with asyncio.timeout(_CLOSE_WITHIN):
                await self._members.close()
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[Connection]:
        async with self._lane():
            with reaching():
                pool = self._pool if self._principal is None else await self._members.pool()
                connection = await pool.acquire(timeout=ANSWER_SECONDS)
            self.before()
            with translated(denying=self._principal is not None):
                try:
                    yield connection
                finally:
                    await pool.release(connection)

    @asynccontextmanager
    async def _lane(self) -> AsyncIterator[None]:
        """Leave the last connections to urgent work."""
        if is_urgent.get() or self._principal is not None:
            yield
            return
        with reaching():
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._ordinary.acquire()
        try:
            yield
        finally:
            self._ordinary.release()


async def lock_name(tx: Connection, name: str) -> None:
    """Let one transaction at a time do what this names, until its end."""
    await tx.execute("select pg_advisory_xact_lock(hashtextextended($1, 0))", name)


async def take_long(connection: Connection) -> None:
    """Lift the limit of time from the transaction under way."""
    if ends_transactions(connection):
        await connection.execute("set local transaction_timeout to 0")
