"""From an empty home to a message on Telegram and on the page, without opening a file."""

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from typer.testing import CliRunner

from gateway.cli.main import build
from tests.browser.conftest import browser
from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, STRANGER, GatewayProcess, configured, until

__all__ = ["browser"]

KEY = "sk-proj-" + "a1B2" * 10


async def test_a_stranger_talks_to_their_bot_without_opening_a_file(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, browser: Browser
) -> None:
    process.configure(
        {
            "models": {"providers": {"openai": {"base_url": models.base_url}}},
            "channels": {"telegram": {"enabled": False, "api_base": telegram.url}},
        }
    )
    await process.start()
    page = await (await browser.new_context()).new_page()
    page.on("dialog", lambda dialog: dialog.accept())
    await page.goto((await process.command("web")).told.strip().splitlines()[-1])
    await page.wait_for_url("**/setup")

    await connect_model(page, models)
    await connect_telegram(page, telegram)
    await prove_to_be_the_owner(page, telegram)

    telegram.say("hello mk5x", STRANGER)
    await telegram.wait_for(lambda tg: any("fin5x" in sent.text for sent in tg.sent), 30)
    await page.get_by_role("button", name="Open the chat").click()
    await expect(page.locator("#thread")).to_contain_text("fin5x")
    await page.fill("#text", "and here mk6x")
    await page.keyboard.press("Enter")
    await expect(page.locator("#thread")).to_contain_text("fin6x")

    shown = await page.content() + (process.home / "config.json").read_text() + logs(process.data)
    assert KEY not in shown
    assert telegram.token not in shown
    await process.restart()
    telegram.say("still there? mk7x", STRANGER)
    await telegram.wait_for(lambda tg: any("fin7x" in sent.text for sent in tg.sent), 30)


async def connect_model(page: Page, models: FakeModels) -> None:
    models.rules.append(Rule(match="ready", status=401, code="invalid_api_key", times=1))
    model = page.locator("#setup-model")
    await model.locator("#setup-key").fill(KEY)
    await model.get_by_role("button", name="Test and save").click()
    await expect(model.locator(".problem")).to_contain_text("OpenAI refuses this key")
    await model.get_by_role("button", name="Test and save").click()
    await expect(model).to_have_attribute("data-state", "on")
    await expect(model).to_contain_text("openai/gpt-5.6-terra")


async def connect_telegram(page: Page, telegram: FakeTelegram) -> None:
    row = page.locator("#setup-telegram")
    await row.locator("summary").click()
    await row.get_by_label("token").fill("@my_bot")
    await row.get_by_role("button", name="Test and save").click()
    await expect(row.locator(".problem")).to_contain_text("not a bot token; @BotFather gives one")
    await row.get_by_label("token").fill(telegram.token)
    await row.get_by_role("button", name="Test and save").click()


async def prove_to_be_the_owner(page: Page, telegram: FakeTelegram) -> None:
    """Whoever writes first is nobody; whoever has the code is asked about on the page."""
    row = page.locator("#setup-telegram")
    opens = row.get_by_role("link", name="Open Telegram")
    await expect(opens).to_have_attribute("href", re.compile(r"^https://t\.me/fake_bot\?start=\w{8}$"))
    code = str(await opens.get_attribute("href")).rpartition("=")[2]
    telegram.say("I was first", 4711)
    telegram.say(f"/start {code}", STRANGER)
    asks = page.locator(".row.asks")
    await expect(asks).to_contain_text(str(STRANGER))
    assert not any(sent.chat == 4711 for sent in telegram.sent)
    await asks.get_by_role("button", name="Link").click()
    await expect(row).to_contain_text(f"You are {STRANGER} there")
    await until(lambda: _joined(telegram))


async def _joined(telegram: FakeTelegram) -> bool:
    return any(sent.chat == STRANGER and "one of yours" in sent.text for sent in telegram.sent)


def logs(data: Path) -> str:
    return "".join(file.read_text() for file in (data / "logs").iterdir() if file.is_file())


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
    await telegram.wait_for(lambda tg: any("fin8x" in sent.text for sent in tg.sent), 30)


async def _offered(process: GatewayProcess) -> bool:
    return bool(await process.rows("select code from links"))
