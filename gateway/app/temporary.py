"""A database for one piece of work, gone after it."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.store.connection.pool import Database
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.memory import extension
from gateway.store.migrate import migrate


@asynccontextmanager
async def temporary_database(purpose: str) -> AsyncIterator[Database]:
    """With the schema of this program and the tables of vectors, on a server of its own; `purpose` names its folder."""
    with tempfile.TemporaryDirectory(prefix=f"supaclaw-{purpose}-") as folder:
        server = EmbeddedPostgres(Path(folder))
        try:
            async with await Database.connect(await server.start()) as database:
                await migrate(database)
                await database.run(extension.ensure)
                yield database
        finally:
            await server.stop()
