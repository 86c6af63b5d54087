import pytest

from gateway.store.connection.pool import Database
from tests.flow.conftest import model, path, workspace
from tests.store.world import World, found

__all__ = ["model", "path", "workspace", "world"]


@pytest.fixture
async def world(database: Database) -> World:
    """The owner, at one address, in one session."""
    return await found(database)
