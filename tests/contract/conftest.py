"""Every messenger passes the suites of this folder; a new one adds its adapter to `CHANNELS`."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.slack import slack
from tests.contract.telegram import telegram
from tests.contract.under_test import ChannelUnderTest, Gateway, receiving
from tests.contract.whatsapp import whatsapp
from tests.web.conftest import running, web

__all__ = ["running", "web"]

CHANNELS = {"slack": slack, "telegram": telegram, "whatsapp": whatsapp}


@pytest.fixture(params=list(CHANNELS.values()), ids=list(CHANNELS))
async def platform(request: pytest.FixtureRequest) -> AsyncIterator[ChannelUnderTest]:
    async with request.param() as under_test:
        yield under_test


@pytest.fixture
async def gateway(platform: ChannelUnderTest) -> AsyncIterator[Gateway]:
    gateway = Gateway()
    async with receiving(platform, gateway):
        yield gateway
