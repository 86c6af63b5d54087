"""The exchanges of providers with their own protocols, behind litellm's real code."""

from collections.abc import AsyncIterator
from importlib import import_module

import pytest
import pytest_asyncio

from tests.llm.wire.checks import check
from tests.llm.wire.exchange import Exchange
from tests.llm.wire.test_exchanges import LITELLM

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]


@pytest_asyncio.fixture(loop_scope="module", scope="module", autouse=True)
async def connections() -> AsyncIterator[None]:
    """litellm keeps connections per event loop; they are closed with the loop."""
    yield
    await import_module("litellm").close_litellm_async_clients()


@pytest.mark.parametrize("exchange", LITELLM, ids=lambda exchange: exchange.name)
async def test_the_gateway_does_what_is_right(exchange: Exchange) -> None:
    await check(exchange)
