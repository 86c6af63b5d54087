"""`supaclaw init`: the same as the page's Setup, which tests/journeys/test_browser_story.py goes through."""

import asyncio

import pytest
from typer.testing import CliRunner

from gateway.cli.main import build
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured, until

pytestmark = pytest.mark.thorough


async def test_the_terminal_does_the_same(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.configure(
        configured(None, models) | {"channels": {"telegram": {"enabled": False, "api_base": telegram.url}}}
    )
    await process.start()
    monkeypatch.setenv("SUPACLAW_DATA", str(process.data))
    monkeypatch.setenv("SUPACLAW_CONFIG", str(process.home / "config.json"))
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", process.dsn or "")
    typed = "".join(f"{line}\n" for line in ("", "n", "y", "@my_bot", telegram.token, "y", "n"))
    init = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, build(), ["init"], input=typed))
    await until(lambda: _offered(process), 120)
    [code] = await process.rows("select code from links")
    telegram.say(f"/start {code['code']}", OWNER)
    done = await init

    assert done.exit_code == 0, done.output
    assert "not a bot token" in done.output
    assert f"https://t.me/fake_bot?start={code['code']}" in done.output
    assert "Your account is linked." in done.output
    assert telegram.token not in done.output.replace(f"skip): {telegram.token}", ""), "but for the echo of typing"
    telegram.say("hello mk8x", OWNER)
    await telegram.wait_for(lambda tg: any("fin8x" in sent.text for sent in tg.sent), 180)


async def _offered(process: GatewayProcess) -> bool:
    return bool(await process.rows("select code from links"))
