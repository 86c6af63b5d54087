"""A real database that can be away."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.domain.errors import DatabaseDown
from gateway.store.connection.pool import Connection, Database


class AwayAtTimes(Database):
    """While `away`, no connection is to be had."""

    away = False

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[Connection]:
        if self.away:
            raise DatabaseDown("away")
        async with super()._held() as connection:
            yield connection
