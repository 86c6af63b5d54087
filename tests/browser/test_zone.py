"""The browser's time zone, offered in one quiet line."""

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import PHONE, opened
from tests.browser.test_memory import accessible
from tests.web.conftest import Web

pytestmark = pytest.mark.thorough


async def test_the_zone_is_offered_once_and_used_by_a_click(browser: Browser, web: Web) -> None:
    for phone, scheme in ((False, "light"), (True, "dark")):
        async with opened(browser, web, phone=phone, scheme=scheme) as watched:
            offer = watched.page.locator("#zone")
            await expect(offer).to_contain_text("for your times?")
            name = await watched.page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
            await expect(offer).to_contain_text(f"Use {name} for")
            await watched.show(f"zone-{'phone' if phone else 'desktop'}-{scheme}")
            if phone:
                box = await offer.bounding_box()
                assert box is not None
                assert box["x"] + box["width"] <= PHONE["width"]
            await accessible(watched.page)
            await watched.assert_clean()
    async with opened(browser, web) as watched:
        await watched.page.get_by_role("button", name="Use it").click()
        await expect(watched.page.locator("#zone")).to_have_count(0)
        await expect(watched.page.locator("#toast")).to_contain_text(f"Your times are in {name} now.")
        await watched.page.reload()
        await expect(watched.page.locator("#composer")).to_be_visible()
        await expect(watched.page.locator("#zone")).to_have_count(0)
        await watched.assert_clean()
    assert f"Time zone: {name}" in (web.path.workspace / "USER.md").read_text(encoding="utf-8")


async def test_not_now_is_the_end_of_it(browser: Browser, web: Web) -> None:
    async with opened(browser, web) as watched:
        await watched.page.get_by_role("button", name="Not now").click()
        await expect(watched.page.locator("#zone")).to_have_count(0)
        await watched.page.reload()
        await expect(watched.page.locator("#composer")).to_be_visible()
        await expect(watched.page.locator("#zone")).to_have_count(0)
        await watched.assert_clean()
