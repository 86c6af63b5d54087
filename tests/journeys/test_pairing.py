"""A stranger is let in, by the owner's button and by the terminal beside a running gateway."""

import re

import pytest

from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, STRANGER, GatewayProcess, configured


@pytest.fixture
async def gateway(process: GatewayProcess, telegram: FakeTelegram, models: FakeModels) -> GatewayProcess:
    config = configured(telegram, models)
    config["channels"]["telegram"]["access"] = "pairing"
    process.configure(config)
    await process.start()
    return process


async def asked(telegram: FakeTelegram) -> str:
    """The code that the stranger is given and the owner is told."""
    telegram.say("let me in", STRANGER)
    await telegram.wait_for(lambda tg: {s.chat for s in tg.sent if "code" in s.text} == {OWNER, STRANGER})
    codes = {found[1] for s in telegram.sent if (found := re.search(r"code:? (\w{8})", s.text))}
    [code] = codes
    return code


async def test_the_owner_lets_a_stranger_in(gateway: GatewayProcess, telegram: FakeTelegram) -> None:
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    code = await asked(telegram)
    notice = next(s for s in telegram.sent if s.chat == OWNER and code in s.text)
    telegram.press(notice, f"/pairing approve {code}")
    await telegram.wait_for(lambda tg: any(s.chat == STRANGER and "have access" in s.text for s in tg.sent))
    telegram.say("thanks mk2x", STRANGER)
    await telegram.wait_for(lambda tg: any(s.chat == STRANGER and "fin2x" in s.text for s in tg.sent))


async def test_the_terminal_lets_a_stranger_in_beside_a_running_gateway(
    gateway: GatewayProcess, telegram: FakeTelegram
) -> None:
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    done = await gateway.command("pairing", "approve", await asked(telegram))
    assert "has access" in done.told
    await telegram.wait_for(lambda tg: any(s.chat == STRANGER and "have access" in s.text for s in tg.sent))
    telegram.say("thanks mk2x", STRANGER)
    await telegram.wait_for(lambda tg: any(s.chat == STRANGER and "fin2x" in s.text for s in tg.sent))
