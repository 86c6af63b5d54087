"""Agents, as they look and work in a browser: made, refused with the reason, edited, tested in place."""

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import opened
from tests.browser.looks import looks
from tests.browser.test_memory import accessible
from tests.browser.test_screens import to
from tests.web.conftest import Web

pytestmark = pytest.mark.thorough


@looks
async def test_agents(browser: Browser, web: Web, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        watched.page.on("dialog", lambda dialog: dialog.accept())
        page = await to(watched, web, "/agents", phone=phone)
        await accessible(page)
        await page.get_by_text("New agent").first.click()
        await page.get_by_label("Short name").fill("researcher")
        await page.get_by_label("Name", exact=True).fill("Researcher")
        await page.get_by_label("What it is for").fill("finds and compares sources")
        await page.get_by_label("What it should do").fill("You look for primary sources.")
        await page.get_by_label("Most that one run may cost").fill("0.20")
        await page.get_by_role("checkbox").first.check()
        await accessible(page)
        await watched.show(f"agents-new-{look}")
        await page.get_by_role("button", name="Create").click()
        row = page.locator("#agent-researcher")
        await expect(page.locator("#making[open]")).to_have_count(0)
        await expect(row).to_contain_text("finds and compares sources")

        await row.get_by_text("Edit and test").click()
        await row.get_by_text("Its file").click()
        text = row.get_by_label("Text of researcher.md")
        good = await text.input_value()
        await text.fill(good.replace("budget: 0.2", "budget: much"))
        await row.get_by_role("button", name="Save file").click()
        await expect(page.get_by_text("Not saved: budget")).to_be_visible()
        await accessible(page)
        await watched.expects("400")
        await text.fill(good.replace("budget: 0.2", "budget: 0.3"))
        await row.get_by_role("button", name="Save file").click()
        await expect(row).to_contain_text("$0.30 a run")
        await expect(page.get_by_text("Saved. It counts from the next run.")).to_be_visible()
        await text.fill(good)
        await row.get_by_role("button", name="Save file").click()
        await expect(row).to_contain_text("$0.20 a run")

        web.model.says("Two sources agree.")
        await row.get_by_label("A task to test it with").fill("Who wrote it?")
        await row.get_by_role("button", name="Test").click()
        await expect(row.locator(".told")).to_contain_text("Two sources agree.")
        await accessible(page)
        await watched.show(f"agents-{look}")
        await page.get_by_role("button", name="Delete researcher").click()
        await expect(row).to_have_count(0)
        await watched.assert_clean()
