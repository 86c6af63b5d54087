"""What tests of an object store ask for."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.fakes.s3 import Careless, moto, new_bucket


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The session's server."""
    with moto() as endpoint:
        yield endpoint


@pytest.fixture
async def careless(s3: str) -> AsyncIterator[Careless]:
    """The store that ignores conditions."""
    async with Careless(s3) as proxy:
        yield proxy


@pytest.fixture(params=["moto", "ignores conditions"])
async def endpoint(request: pytest.FixtureRequest, s3: str, careless: Careless) -> str:
    """Either kind of store."""
    return s3 if request.param == "moto" else careless.endpoint


@pytest.fixture
async def bucket(s3: str) -> str:
    """Empty."""
    return await new_bucket(s3)
