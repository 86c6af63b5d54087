"""Schedules, as they look and work in a browser: the next five while a cron is typed, run, pause, history."""

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import opened
from tests.browser.looks import looks
from tests.browser.test_memory import accessible
from tests.browser.test_screens import to
from tests.web.conftest import Web

pytestmark = pytest.mark.thorough


@looks
async def test_schedules(browser: Browser, web: Web, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        watched.page.on("dialog", lambda dialog: dialog.accept())
        page = await to(watched, web, "/schedules", phone=phone)
        await expect(page.get_by_text("Nothing is scheduled")).to_be_visible()
        await accessible(page)
        await page.get_by_text("New schedule").first.click()
        await expect(page.locator(".preview li")).to_have_count(5)
        await page.get_by_label("Name").fill("list")
        await page.get_by_label("What the agent should do").fill("Tell me what's on my list.")
        await page.get_by_label("Time zone").fill("Asia/Tokyo")
        await page.get_by_role("combobox", name="Repeat").select_option("Every month, on a day of the week")
        await expect(page.locator(".preview p")).to_contain_text("on the first Monday of the month at 09:00 Asia/Tokyo")
        await accessible(page)
        await watched.show(f"schedules-builder-{look}")
        await page.get_by_role("combobox", name="Repeat").select_option("Once")
        await page.get_by_label("Date", exact=True).fill("2030-01-02")
        await expect(page.locator(".preview li")).to_have_text(["Wed 2 Jan 2030 09:00 Asia/Tokyo"])
        await page.get_by_role("combobox", name="Repeat").select_option("By cron fields")
        await page.get_by_label("Cron fields", exact=True).press_sequentially("30 8 * *")
        await expect(page.locator(".preview .problem")).to_contain_text("cron_expr")
        await accessible(page)
        await page.get_by_label("Cron fields", exact=True).press_sequentially(" 1-5")
        await expect(page.locator(".preview li")).to_have_count(5)
        await expect(page.locator(".preview p")).to_contain_text("every weekday at 08:30 Asia/Tokyo")
        await accessible(page)
        await watched.show(f"schedules-new-{look}")
        await page.get_by_role("button", name="Create").click()
        row = page.locator(".row.schedule")
        await expect(page.locator("#making[open]")).to_have_count(0)
        await expect(row).to_contain_text("every weekday at 08:30")
        await expect(row).to_contain_text("Tell me what's on my list.")

        web.model.says("Milk and bread.")
        await page.get_by_role("button", name="Run now: list").click()
        await row.get_by_text("History and edit").click()
        await expect(row.locator(".sources li")).to_have_count(1)
        await expect(row.get_by_role("combobox", name="Repeat")).to_have_value("weekday")
        await row.get_by_role("combobox", name="Repeat").select_option("Every day")
        await row.get_by_label("Time", exact=True).fill("09:00")
        await expect(row.locator(".preview p")).to_contain_text("every day at 09:00")
        await page.get_by_role("button", name="Pause: list").click()
        await expect(row.get_by_text("paused", exact=True)).to_be_visible()
        await expect(row.get_by_role("combobox", name="Repeat")).to_have_value("day")
        await accessible(page)
        await watched.show(f"schedules-{look}")
        await row.get_by_role("button", name="Save").click()
        await expect(row).to_contain_text("every day at 09:00")
        await page.get_by_role("button", name="Resume: list").click()
        await expect(row.get_by_text("paused", exact=True)).to_have_count(0)
        await page.get_by_role("button", name="Delete: list").click()
        await expect(row).to_have_count(0)
        await watched.assert_clean()
