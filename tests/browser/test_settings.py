import re

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import opened
from tests.browser.looks import looks
from tests.browser.test_memory import accessible
from tests.config.editing.conftest import KEY, WRITTEN, Desk, desk
from tests.web.conftest import Running

pytestmark = pytest.mark.thorough

__all__ = ["desk"]


@looks
async def test_settings_are_found_reviewed_saved_and_reverted(
    browser: Browser, running: Running, desk: Desk, scheme: str, phone: bool
):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    started = await running.start(editor=desk.editor)
    async with opened(browser, started.web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        await page.set_viewport_size({"width": 390, "height": 844} if phone else {"width": 1440, "height": 900})
        await page.goto(f"{started.web.page}/settings")
        await expect(page.get_by_label("owner.name")).to_have_value("Zoë")
        await expect(page.get_by_label("web.port")).to_be_hidden()
        await expect(page.get_by_label("models.primary")).to_be_disabled()
        assert KEY not in await page.content()
        await expect(page.get_by_label("channels.telegram.enabled")).to_have_text(re.compile("on \\(default\\)"))
        await expect(page.get_by_label("channels.telegram.access")).to_contain_text("pairing: others ask, you decide")
        await accessible(page)
        await watched.show(f"settings-{look}")
        await page.get_by_label("Show advanced settings").check()
        await expect(page.get_by_label("web.port")).to_be_visible()
        await accessible(page)
        await watched.show(f"settings-advanced-{look}")
        await page.get_by_label("Show advanced settings").uncheck()

        await page.get_by_label("Search settings").fill("zzz")
        await expect(page.get_by_text("No setting matches.")).to_be_visible()
        await page.get_by_label("Search settings").fill("largest file")
        await page.get_by_label("limits.file_mb").fill("lots")
        await page.get_by_role("button", name="Review changes").click()
        await expect(page.locator("#toast")).to_contain_text("limits.file_mb: must be a whole number")
        await expect(page.get_by_label("limits.file_mb")).to_be_focused()
        await watched.expects("status of 409")
        await watched.show(f"settings-invalid-{look}")
        await page.get_by_label("limits.file_mb").fill("60")
        await page.get_by_label("Search settings").fill("")
        await page.get_by_label("A day, in US dollars").fill("3")
        await page.get_by_role("button", name="Review changes").click()
        await expect(page.locator(".diff .added").first).to_be_visible()
        await expect(page.locator("#review")).to_be_focused()
        await accessible(page)
        await watched.show(f"settings-review-{look}")
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(page.locator("#review [role=alert]")).to_be_visible()
        await page.get_by_label("I want to change budgets.day_usd").check()
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(page.locator("#review h2")).to_have_text("Saved")
        await expect(page.locator("#review li")).to_have_text(["budgets: applied", "limits: applied"])
        assert desk.written["limits"] == {"file_mb": 60}
        await accessible(page)
        await watched.show(f"settings-saved-{look}")

        await page.get_by_role("button", name="Revert the last save").click()
        await page.get_by_label("I want to change budgets.day_usd").check()
        await page.get_by_role("button", name="Save", exact=True).click()
        await expect(page.get_by_label("A day, in US dollars")).to_have_value("")
        assert desk.path.read_text(encoding="utf-8") == WRITTEN

        await page.get_by_label("config.json", exact=True).fill('{"logs": {"keep": "90d"}')
        await page.get_by_role("button", name="Review JSON").click()
        await expect(page.locator("#toast")).to_contain_text("line 1, column")
        await watched.expects("status of 409")
        await page.goto(f"{started.web.page}/settings?find=channels.slack")
        await expect(page.get_by_label("channels.slack.bot_token")).to_be_visible()
        await expect(page.get_by_label("owner.name")).to_be_hidden()
        await watched.assert_clean()
    await started.stop()


@looks
async def test_channels_are_tested_and_switched_off(
    browser: Browser, running: Running, desk: Desk, scheme: str, phone: bool
):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    states = {"telegram": "refused: the token is wrong or was revoked; @BotFather gives a new one", "whatsapp": "open"}
    started = await running.start(editor=desk.editor, states=lambda: states)
    async with opened(browser, started.web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        page.on("dialog", lambda dialog: dialog.accept())
        await page.set_viewport_size({"width": 390, "height": 844} if phone else {"width": 1440, "height": 900})
        await page.goto(f"{started.web.page}/channels")
        await expect(page.locator("#channel-telegram")).to_contain_text("Refused: the token is wrong")
        await expect(page.locator("#add-channel")).to_contain_text("Slack")
        lines = [await page.locator("#channel-telegram small").nth(at).bounding_box() for at in (0, -1)]
        assert lines[0]
        assert lines[1]
        assert lines[0]["y"] + lines[0]["height"] <= lines[1]["y"]
        await accessible(page)
        await watched.show(f"channels-settings-{look}")
        await page.locator("#channel-telegram").get_by_role("button", name="Disable").click()
        await expect(page.locator("#channel-telegram button").first).to_be_enabled()
        states["telegram"] = "disabled"
        await expect(page.locator("#channel-telegram").get_by_role("button", name="Enable")).to_be_visible()
        assert desk.written["channels"] == {"telegram": {"token": "$env:BOT", "allow": [7], "enabled": False}}
        await page.locator("#channel-telegram").get_by_role("link", name="Edit").click()
        await expect(page.get_by_label("channels.telegram.enabled")).to_have_value("false")
        await watched.assert_clean()
    await started.stop()
