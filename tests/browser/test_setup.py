import json
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.flow.setup import Setup
from gateway.llm.client import Description
from gateway.logs import SecretMask
from tests.browser.conftest import opened
from tests.browser.looks import looks
from tests.fakes.openai_server import FakeModels, Rule
from tests.web.conftest import Running

pytestmark = pytest.mark.thorough

KEY = "sk-" + "0f" * 16


async def accessible(page: Page) -> None:
    found = await Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@looks
async def test_a_model_and_a_bot_are_connected(
    browser: Browser, running: Running, tmp_path: Path, scheme: str, phone: bool
):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    environ = {"SUPACLAW_DATA": str(tmp_path / "data"), "SUPACLAW_CONFIG": str(tmp_path / "config.json")}
    environment = Environment.read(environ)
    setup = Setup(environment, environ, SystemClock(), lambda: load(environment.config, environ), SecretMask().add)
    active, states = ["openai/mini"], dict[str, str]()
    async with FakeModels(Rule(status=404, code="model_not_found", times=1)) as models:
        provider = {"deepseek": {"base_url": models.base_url}}
        environment.config.write_text(json.dumps({"models": {"providers": provider}}))
        started = await running.start(
            setup=setup,
            model=lambda: Description(active[0], "set in config.json", (), ()),
            states=lambda: states,
            deep_link=lambda name, code: f"https://t.me/fake_bot?start={code}" if name == "telegram" else "",
        )
        async with opened(browser, started.web, scheme=scheme, phone=phone) as watched:
            page = watched.page
            active[0] = "guide/built-in"
            await page.goto(f"{started.web.page}/")
            await expect(page.locator("#setup-intro h2")).to_have_text("Connect your agent")
            await expect(page.get_by_role("button", name="Skip for now")).to_be_visible()
            await watched.show(f"setup-empty-{look}")
            await accessible(page)

            await page.fill("#setup-key", KEY)
            await page.keyboard.press("Enter")
            await expect(page.locator("#setup-model .problem")).to_contain_text("OpenAI or DeepSeek; choose")
            await page.select_option("#setup-provider", "deepseek")
            await page.get_by_role("button", name="Test and save").first.click()
            await expect(page.locator("#setup-model .problem")).to_contain_text("choose another")
            await watched.show(f"setup-model-{look}")
            await accessible(page)
            await page.fill("#setup-other", "deepseek/small")
            await page.get_by_role("button", name="Test and save").first.click()
            await expect(page.locator("#setup-model .told").first).to_contain_text(
                "Connected: DeepSeek, deepseek/small"
            )
            await page.click("#setup-server summary")
            server = page.locator("#setup-server")
            await server.get_by_label("Address").fill(models.base_url)
            await server.get_by_label("Model").fill("qwen3")
            await watched.show(f"setup-server-{look}")
            await accessible(page)
            page.on("dialog", lambda dialog: dialog.accept())
            await server.get_by_role("button", name="Test and use").click()
            await expect(server.locator(".problem")).to_contain_text("such as lm_studio/qwen3-8b")
            await server.get_by_label("Model").fill("lm_studio/qwen3")
            await server.get_by_role("button", name="Test and use").click()
            await expect(server).to_contain_text("Connected: LM Studio, lm_studio/qwen3")

            active[0] = "deepseek/small"
            await expect(page.locator("#setup-model")).to_have_attribute("data-state", "on")
            await page.click("#setup-slack summary")
            await expect(page.locator("#setup-slack pre")).to_contain_text("socket_mode_enabled: true")
            states["telegram"] = "open"
            await page.get_by_role("button", name="Show my code").click()
            await expect(page.locator("#setup-telegram .qr svg")).to_be_visible()
            await expect(page.locator("#setup-slack pre")).to_be_visible()
            await watched.show(f"setup-connected-{look}")
            await accessible(page)
            await watched.assert_clean()
