from typing import Any

import pytest

from tests.conftest import one_of_a_class
from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured

pytestmark = pytest.mark.thorough


def with_fallback(telegram: FakeTelegram, models: FakeModels) -> dict[str, Any]:
    config = configured(telegram, models)
    config["models"]["fallbacks"] = ["openai/gpt-4o"]
    return config


async def test_a_wrong_key_is_explained_once_and_kills_nothing(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    models.rules = [Rule(status=401, code="invalid_api_key", message="Incorrect API key: sk-of-the-owner", times=1)]
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    telegram.say("again mk2x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)

    explained = telegram.sent[0].text
    assert "No model could answer." in explained
    assert "openai/mock-model" in explained
    assert "OPENAI_API_KEY" in explained
    assert "sk-of-the-owner" not in explained
    assert "sk-of-the-owner" not in "\n".join(gateway.told)
    assert telegram.sent[1].text.endswith("fin2x")


@pytest.mark.parametrize("status", one_of_a_class([401, 429, 529], {529}))
async def test_a_model_that_fails_is_replaced_by_the_next(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, status: int
) -> None:
    models.rules = [Rule(status=status, times=1)]
    process.configure(with_fallback(telegram, models))
    await process.start()
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    assert [asked.model for asked in models.asked] == ["mock-model", "gpt-4o"]
    assert telegram.sent[0].text.endswith("fin1x")
    [step] = await process.rows("select name, failed from task_steps where kind = 'model'")
    assert step["name"] == "openai/gpt-4o"
    assert "mock-model" in step["failed"]


async def test_litellm_answers_when_it_is_asked_for(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    config = configured(telegram, models)
    config["models"]["engine"] = "litellm"
    process.configure(config)
    await process.start()
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    assert telegram.sent[0].text.endswith("fin1x")
    assert models.count == 1
