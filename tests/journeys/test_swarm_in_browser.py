"""The story of a swarm clicked through: agents registered, a hand-off, a question answered, a trace live, a cancel."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from gateway.web.http.headers import CSP
from tests.browser.conftest import browser
from tests.fakes.mcp_server import FakeMcp
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import GatewayProcess, configured
from tests.journeys.test_browser_story import Visit
from tests.journeys.test_swarm_story import CREDENTIAL, everything, prepared, script, weather, working_parts

pytestmark = pytest.mark.thorough

__all__ = ["browser", "weather"]

TEXT = "---\nname: {slug}\ndescription: does {slug}\n{head}\n---\nYou are {slug}.\n"


async def test_the_story_on_the_page(
    process: GatewayProcess,
    telegram: FakeTelegram,
    models: FakeModels,
    weather: FakeMcp,
    browser: Browser,
    tmp_path: Path,
) -> None:
    server = {"url": weather.url, "headers": {"Authorization": "Bearer ${secret:WEATHER}"}}
    tools = {"tools": {"mcp": {"w": server}}, "net": {"private_allow": [weather.place]}}
    process.configure(configured(telegram, models, **tools))
    models.rules = script()
    await process.start()
    await prepared(process, weather, tmp_path)
    visit = Visit(await (await browser.new_context()).new_page())
    await visit.watch()
    page = visit.page
    await page.goto((await process.command("web")).told.strip().splitlines()[-1])
    await expect(page.locator("#text")).to_be_visible()
    visit.home = page.url.rstrip("/")
    visit.requests.clear()

    await register(visit, "planner", "skills: [rounding]")
    await register(visit, "reporter", "tools: [mcp_w_weather]")
    await expect(page.locator(".row.agent")).to_have_count(3)
    await visit.accessible()

    await ask(visit, "please mk1x", "whole9x")
    await page.locator("article.node summary", has_text="Trace").click()
    steps = page.locator(".trace li")
    for step in ("load_skill", "planner > reporter", "mcp_w_weather"):
        await expect(steps.filter(has_text=step).last).to_be_visible()
    await expect(page.get_by_text("Shall I report 21 degrees?")).to_be_visible()
    await visit.accessible()
    await page.get_by_role("button", name="Yes", exact=True).last.click()
    await expect(page.get_by_text("1 of 1 task is over")).to_be_visible()
    await expect(steps.filter(has_text="complete_task").last).to_be_visible()
    await page.get_by_text("Result").click()
    await expect(page.get_by_label("Result", exact=True)).to_have_text("It is 21 degrees in Ghent.")
    assert weather.called == [("weather", {"city": "Ghent"})]
    await visit.accessible()
    await page.goto(f"{visit.home}/")
    await expect(page.locator("#thread")).to_contain_text("It is 21 degrees in Ghent.")

    await page.fill("#text", "/new")  # in a conversation with others' words it would ask
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.locator("#thread")).not_to_contain_text("It is 21 degrees in Ghent.")
    await ask(visit, "please mk2x", "whole8x")
    await expect(page.get_by_text("0 of 4 tasks are over")).to_be_visible()
    await working_parts(process, models)
    await page.get_by_role("button", name="Cancel part0x").click()
    await expect(page.get_by_text("1 of 4 tasks are over")).to_be_visible()
    await page.get_by_role("button", name="Cancel whole8x").click()
    await expect(page.get_by_text("4 of 4 tasks are over")).to_be_visible()
    await expect(page.locator(".node").get_by_text("cancelled", exact=True)).to_have_count(4)
    await visit.accessible()

    answer = await page.goto(f"{visit.home}/tasks")
    assert answer is not None
    assert answer.headers["content-security-policy"] == CSP
    shown = await page.content() + await everything(process) + str(models.bodies)
    for secret in (CREDENTIAL, "sk-of-the-owner", telegram.token, process.token):
        assert secret not in shown
    visit.assert_clean()


async def register(visit: Visit, slug: str, head: str) -> None:
    """Write an agent's file on the page."""
    page = visit.page
    await page.goto(f"{visit.home}/agents")
    await page.get_by_text("New agent").first.click()
    await page.get_by_label("Short name").fill(slug)
    await page.get_by_label("Name", exact=True).fill(slug)
    await page.get_by_label("What it is for").fill("new")
    await page.get_by_label("What it should do").fill("Nothing yet.")
    await page.get_by_role("button", name="Create").click()
    row = page.locator(f"#agent-{slug}")
    await row.get_by_text("Edit and test").click()
    await row.get_by_text("Its file").click()
    await row.get_by_label(f"Text of {slug}.md").fill(TEXT.format(slug=slug, head=head))
    await row.get_by_role("button", name="Save file").click()
    await expect(row).to_contain_text(f"does {slug}")


async def ask(visit: Visit, text: str, task: str) -> None:
    """Say it in the chat, and open the tree that comes of it."""
    page: Page = visit.page
    await page.goto(f"{visit.home}/")
    await page.fill("#text", text)
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.locator("#thread")).to_contain_text(text)
    await page.get_by_role("link", name="Tasks", exact=True).click()
    await page.get_by_role("link", name=task).click()
