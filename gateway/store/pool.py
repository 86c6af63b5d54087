"""The database as the rest of the store sees it: transactions on pooled connections."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.store.dsn import UNREADABLE, Dsn, parse_dsn
from gateway.store.embedded.cluster import MEMBERS
from gateway.store.failures import Conflict, translated

Connection: TypeAlias = PoolConnectionProxy
"""A connection held for the length of one transaction or read."""

Result = TypeVar("Result")

SEARCH_PATH = "supaclaw, public, extensions"
_AT_MOST = "set {scope} transaction_timeout to '2min'"
"""Whoever is frozen in a transaction, or is gone without a word, holds its locks no longer. Postgres from 17 on."""
_BIND = "select set_config('role', $1, true), set_config('supaclaw.principal', $2, true)"
_ANSWER_WITHIN = 30.0
_CLOSE_WITHIN = 5.0
_TRIES = 3
_REFUSED = (asyncpg.UndefinedObjectError, asyncpg.CantChangeRuntimeParamError, asyncpg.InvalidParameterValueError)
"""What a server says to settings that it does not have, or not so."""


class Database:
    """Pooled connections to one database, closed by `async with`; foreign errors are translated on the way out."""

    def __init__(self, pool: asyncpg.Pool, *, direct: bool, principal: PrincipalId | None = None) -> None:
        self._pool = pool
        self._principal = principal
        self.direct = direct
        """False behind a transaction pooler: notifications do not arrive, poll instead."""

    @classmethod
    async def connect(cls, dsn: str, *, size: int = 10) -> Self:
        """Open at most `size` connections; raises `DatabaseDown`, and `OwnerMustAct` if the address cannot work."""
        target = parse_dsn(dsn)
        with translated(OSError):
            try:
                return cls(await _open_pool(target, size), direct=target.direct)
            except asyncpg.ClientConfigurationError as error:
                raise OwnerMustAct(f"The database URL cannot be used: {error}") from error
            except _REFUSED as error:
                raise OwnerMustAct(f"The server refuses an option of the database URL: {error}; remove it") from error
            except ValueError:  # its text quotes the address, of which a piece may be the password
                raise OwnerMustAct(UNREADABLE) from None

    def bound(self, principal: PrincipalId) -> "Database":
        """The same connections for one member: whatever runs here, it reaches nobody else's rows."""
        return Database(self._pool, direct=self.direct, principal=principal)

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
            if not self.direct:
                await connection.execute(_settings(connection))
            if self._principal is not None:
                await connection.execute(_BIND, MEMBERS, str(self._principal))
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

    async def close(self) -> None:
        """Let running transactions end, but not for long."""
        try:
            async with asyncio.timeout(_CLOSE_WITHIN):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[Connection]:
        with translated(OSError):
            connection = await self._pool.acquire(timeout=_ANSWER_WITHIN)
        with translated():
            try:
                yield connection
            finally:
                await self._pool.release(connection)


async def take_long(connection: Connection) -> None:
    """Lift the limit of time from the transaction under way."""
    if _ends_transactions(connection):
        await connection.execute("set local transaction_timeout to 0")


def _settings(connection: Connection) -> str:
    """What behind a pooler holds for one transaction only."""
    limit = f"; {_AT_MOST.format(scope='local')}" if _ends_transactions(connection) else ""
    return f"set local search_path to {SEARCH_PATH}{limit}"


def _ends_transactions(connection: Connection | asyncpg.Connection) -> bool:
    return connection.get_server_version().major >= 17


async def _open_pool(target: Dsn, size: int) -> asyncpg.Pool:
    settings = {"application_name": "supaclaw"}
    if target.direct:
        settings["search_path"] = SEARCH_PATH
    return await asyncpg.create_pool(
        target.url,
        min_size=1,
        max_size=size,
        max_inactive_connection_lifetime=60.0,
        timeout=_ANSWER_WITHIN,
        command_timeout=_ANSWER_WITHIN,
        statement_cache_size=100 if target.direct else 0,
        server_settings=settings,
        init=_set_up if target.direct else _speak_json,
        reset=_leave_as_it_is,
    )


async def _speak_json(connection: asyncpg.Connection) -> None:
    encoding = getattr(connection.get_settings(), "server_encoding", "UTF8")  # a pooler may keep it to itself
    if encoding != "UTF8":
        raise OwnerMustAct(
            f"The database is encoded in {encoding}, which cannot hold every message: name one in the database URL "
            "that was made with `create database … encoding 'UTF8' template template0`"
        )
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)


async def _set_up(connection: asyncpg.Connection) -> None:
    await _speak_json(connection)
    if _ends_transactions(connection):
        await connection.execute(_AT_MOST.format(scope="session"))


async def _leave_as_it_is(connection: asyncpg.Connection) -> None:
    """Spare a round trip per use: nothing here leaves session state, and asyncpg rolls back by itself."""
