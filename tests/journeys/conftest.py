from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import GatewayProcess, configured


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as telegram:
        yield telegram


@pytest.fixture
async def models() -> AsyncIterator[FakeModels]:
    async with FakeModels() as models:
        yield models


@pytest.fixture
async def process(tmp_path: Path, dsn: str) -> AsyncIterator[GatewayProcess]:
    """A gateway that is not yet started and has no configuration; its database is a fresh one."""
    process = GatewayProcess(tmp_path, dsn)
    yield process
    await process.close()


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """The same, with a Postgres of its own."""
    process = GatewayProcess(tmp_path)
    yield process
    await process.close()


@pytest.fixture
async def gateway(process: GatewayProcess, telegram: FakeTelegram, models: FakeModels) -> GatewayProcess:
    """Running, with the owner on Telegram and a model that speaks the OpenAI protocol."""
    process.configure(configured(telegram, models))
    await process.start()
    return process
