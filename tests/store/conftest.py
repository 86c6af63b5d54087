import pytest

from gateway.store.connection.pool import Database
from tests.store.world import World, found


@pytest.fixture
async def world(database: Database) -> World:
    """The owner, at one address, in one session."""
    return await found(database)
