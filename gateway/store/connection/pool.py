"""The database as the rest of the store sees it: transactions on pooled connections."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.store.connection.connecting import ANSWER_WITHIN, ends_transactions, open_pool, settings
from gateway.store.connection.dsn import UNREADABLE, parse_dsn
from gateway.store.connection.members import Members
from gateway.store.failures import Conflict, reaching, translated

Connection: TypeAlias = PoolConnectionProxy
"""A connection held for the length of one transaction or read."""

Result = TypeVar("Result")

_CLOSE_WITHIN = 5.0
_TRIES = 3
_REFUSED = (asyncpg.UndefinedObjectError, asyncpg.CantChangeRuntimeParamError, asyncpg.InvalidParameterValueError)
"""What a server says to settings that it does not have, or not so."""


class Database:
    """Pooled connections to one database, closed by `async with`; foreign errors are translated on the way out."""

    def __init__(
        self, pool: asyncpg.Pool, members: Members, *, direct: bool, principal: PrincipalId | None = None
    ) -> None:
        self._pool = pool
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
            except _REFUSED as error:
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
                    await connection.execute(settings(connection))
                if self._principal is not None:
                    await self._members.bind(connection, self._principal)
            yield connection

    async def run(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run `work` in one transaction, again when it met a deadlock; it must be repeatable up to its commit."""
        failures = 0
        while True:
            try:
                async with self.transaction() as connection:
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
        with reaching():
            pool = self._pool if self._principal is None else await self._members.pool()
            connection = await pool.acquire(timeout=ANSWER_WITHIN)
        self.before()
        with translated(denying=self._principal is not None):
            try:
                yield connection
            finally:
                await pool.release(connection)


async def take_long(connection: Connection) -> None:
    """Lift the limit of time from the transaction under way."""
    if ends_transactions(connection):
        await connection.execute("set local transaction_timeout to 0")
