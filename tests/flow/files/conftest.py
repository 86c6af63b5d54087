from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store.connection.pool import Database
from tests.fakes.s3_fixtures import bucket, careless, endpoint, s3
from tests.flow.files.machines import Machine, Machines, machines_of
from tests.store.world import World, found

__all__ = ["bucket", "careless", "endpoint", "s3"]


@pytest.fixture
async def world(database: Database) -> World:
    return await found(database)


@pytest.fixture
def machines(world: World, tmp_path: Path, endpoint: str, bucket: str) -> Iterator[Machines]:
    with machines_of(world, tmp_path, endpoint, bucket) as made:
        yield made


@pytest.fixture
def ada(machines: Machines) -> Machine:
    return machines("ada")


@pytest.fixture
def bob(machines: Machines) -> Machine:
    return machines("bob")
