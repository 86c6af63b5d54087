"""In a browser, from an empty home to a conversation that is exported: what a new owner does on the first evening."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import PHONE, browser
from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import STRANGER, GatewayProcess, Json, until

pytestmark = pytest.mark.thorough

__all__ = ["browser"]

KEY = "sk-proj-" + "a1B2" * 10
COLD_PAGE_BYTES = 120 * 1024
SIZES = [{"width": 1440, "height": 900}, PHONE]
TRIP = "Plan two days in Lisbon"
PLAN = "Day one: **Alfama** on foot. Day two: the tram to *Belém*."


@dataclass
class Visit:
    """A page, and everything that should not happen on it."""

    page: Page
    home: str = ""
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)

    async def watch(self) -> None:
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: dialog.accept())
        devtools = await self.page.context.new_cdp_session(self.page)
        await devtools.send("Network.enable")
        await devtools.send("Network.setCacheDisabled", {"cacheDisabled": True})
        devtools.on("Network.loadingFinished", lambda event: self.sizes.append(event["encodedDataLength"]))

    async def accessible(self) -> None:
        found = await Axe().run(self.page)
        assert found.violations_count == 0, f"{self.page.url}\n{found.generate_report()}"
        assert await self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), self.page.url

    async def open_cold(self, path: str) -> None:
        """Load a screen with nothing cached, and look at it."""
        await self.page.goto("about:blank")
        self.sizes.clear()
        await self.page.goto(f"{self.home}{path}", wait_until="load")
        await expect(self.page.locator("main h1")).to_be_visible()
        await self.accessible()
        assert 0 < sum(self.sizes) <= COLD_PAGE_BYTES, (path, self.sizes)

    def assert_clean(self) -> None:
        assert self.errors == []
        assert [url for url in self.requests if not url.startswith((self.home, "data:", "about:"))] == []


@pytest.mark.parametrize("size", SIZES, ids=["desktop", "phone"])
async def test_the_first_evening(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, browser: Browser, size: dict[str, int]
) -> None:
    models.rules.append(Rule(match=TRIP, text=PLAN))
    process.configure(where_the_fakes_are(models, telegram))
    await process.start()
    visit = Visit(await (await browser.new_context(viewport=size)).new_page())
    page = visit.page
    await visit.watch()
    await page.goto((await process.command("web")).told.strip().splitlines()[-1])
    await page.wait_for_url("**/setup")
    visit.home = page.url.removesuffix("/setup")
    visit.requests.clear()

    await connect_model(visit, models)
    await connect_telegram(visit, telegram)
    await prove_to_be_the_owner(visit, telegram)
    await talk_there_and_here(visit, telegram)
    await change_a_setting_and_revert_it(visit, process.home / "config.json")
    await find_and_export(visit)
    await page.goto(f"{visit.home}/")
    for path in await page.locator("nav.side a").evaluate_all("links => links.map(link => link.getAttribute('href'))"):
        await visit.open_cold(path)
    visit.assert_clean()

    shown = await page.content() + (process.home / "config.json").read_text() + logs(process.data)
    assert KEY not in shown
    assert telegram.token not in shown
    await process.restart()
    telegram.say("still there? mk7x", STRANGER)
    await telegram.wait_for(lambda tg: any("fin7x" in sent.text for sent in tg.sent))


def where_the_fakes_are(models: FakeModels, telegram: FakeTelegram) -> Json:
    return {
        "models": {"providers": {"openai": {"base_url": models.base_url}}},
        "channels": {"telegram": {"enabled": False, "api_base": telegram.url}},
    }


async def connect_model(visit: Visit, models: FakeModels) -> None:
    models.rules.append(Rule(match="Count from one", status=401, code="invalid_api_key", times=1))
    await expect(visit.page.get_by_role("heading", name="Connect your agent")).to_be_visible()
    await visit.accessible()
    model = visit.page.locator("#setup-model")
    await model.locator("#setup-key").fill(KEY)
    await model.get_by_role("button", name="Test and save").click()
    await expect(model.locator(".problem")).to_contain_text("OpenAI refuses this key")
    await visit.accessible()
    await model.get_by_role("button", name="Test and save").click()
    await expect(model).to_have_attribute("data-state", "on")
    await expect(model).to_contain_text("openai/gpt-5.6-terra")


async def connect_telegram(visit: Visit, telegram: FakeTelegram) -> None:
    row = visit.page.locator("#setup-telegram")
    await row.locator("summary").click()
    await row.get_by_label("token").fill("@my_bot")
    await row.get_by_role("button", name="Test and save").click()
    await expect(row.locator(".problem")).to_contain_text("not a bot token; @BotFather gives one")
    await row.get_by_label("token").fill(telegram.token)
    await row.get_by_role("button", name="Test and save").click()


async def prove_to_be_the_owner(visit: Visit, telegram: FakeTelegram) -> None:
    """Whoever writes first stays a stranger; whoever has the code is asked about on the page."""
    row = visit.page.locator("#setup-telegram")
    opens = row.get_by_role("link", name="Open Telegram")
    await expect(opens).to_have_attribute("href", re.compile(r"^https://t\.me/fake_bot\?start=\w{8}$"))
    await visit.accessible()
    code = str(await opens.get_attribute("href")).rpartition("=")[2]
    telegram.say("I was first", 4711)
    telegram.say(f"/start {code}", STRANGER)
    asks = visit.page.locator(".row.asks")
    await expect(asks).to_contain_text(str(STRANGER))
    assert not any(sent.chat == 4711 for sent in telegram.sent)
    await asks.get_by_role("button", name="Link").click()
    await expect(row).to_contain_text(f"You are {STRANGER} there")
    await until(lambda: _joined(telegram))


async def _joined(telegram: FakeTelegram) -> bool:
    return any(sent.chat == STRANGER and "one of yours" in sent.text for sent in telegram.sent)


async def talk_there_and_here(visit: Visit, telegram: FakeTelegram) -> None:
    page = visit.page
    telegram.say(TRIP, STRANGER)
    await telegram.wait_for(lambda tg: any("Alfama" in sent.text for sent in tg.sent))
    await page.get_by_role("button", name="Open the chat").click()
    await expect(page.locator(".assistant strong")).to_have_text("Alfama")
    await page.fill("#text", "and here mk6x")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.locator("#thread")).to_contain_text("fin6x")
    await visit.accessible()


async def change_a_setting_and_revert_it(visit: Visit, config: Path) -> None:
    page = visit.page
    before = text_of(config)
    await page.goto(f"{visit.home}/settings")
    await page.get_by_label("Search settings").fill("largest file")
    await page.get_by_label("limits.file_mb").fill("60")
    await page.get_by_role("button", name="Review changes").click()
    await expect(page.locator(".diff .added", has_text='"file_mb": 60')).to_be_visible()
    await visit.accessible()
    await page.get_by_role("button", name="Save", exact=True).click()
    await expect(page.locator("#review li")).to_have_text(["limits: applied"])
    assert json.loads(text_of(config))["limits"] == {"file_mb": 60}
    await visit.accessible()
    await page.get_by_role("button", name="Revert the last save").click()
    await expect(page.get_by_label("limits.file_mb")).to_have_value("")
    await expect(page.locator("#review li")).to_have_text(["limits: applied"])
    assert text_of(config) == before


async def find_and_export(visit: Visit) -> None:
    page = visit.page
    await until(lambda: _found(visit, "alfama"))
    await visit.accessible()
    await page.locator(".conversation p a").first.click()
    await expect(page.locator(".message:target")).to_be_in_viewport()
    await visit.accessible()
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Markdown").click()
    exported = text_of(Path(await (await download.value).path()))
    assert TRIP in exported
    assert PLAN in exported


async def _found(visit: Visit, words: str) -> bool:
    """The index follows an answer after a moment."""
    await visit.page.goto(f"{visit.home}/c")
    await visit.page.get_by_label("Search conversations").fill(words)
    await visit.page.wait_for_url(f"**/c?q={words}")
    return await visit.page.locator("article.conversation mark").count() > 0


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def logs(data: Path) -> str:
    return "".join(file.read_text() for file in (data / "logs").iterdir() if file.is_file())
