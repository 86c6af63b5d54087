"""Secrets and the form behind a one-time link, as they look and work in a browser."""

import pytest
from playwright.async_api import Browser, expect

from gateway.secrets.facts import Binding
from tests.browser.conftest import opened
from tests.browser.test_memory import accessible
from tests.browser.test_screens import looks, to
from tests.web.conftest import Web

pytestmark = pytest.mark.thorough

VALUE = "hush-hush-hush"
BOUND = Binding.of(["api.example.org"], ["weather"], "header:Authorization")


@looks
async def test_secrets(browser: Browser, web: Web, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    secrets = web.backend.settings.secrets
    assert secrets is not None
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = await to(watched, web, "/secrets", phone=phone)
        page.on("dialog", lambda dialog: dialog.accept())
        await expect(page.get_by_text("No secrets")).to_be_visible()
        await page.locator("#making summary").click()
        await accessible(page)
        await watched.show(f"secrets-empty-{look}")
        await page.get_by_label("Name", exact=True).fill("WEATHER_KEY")
        await page.get_by_label("Value", exact=True).fill(VALUE)
        await page.get_by_label("Hosts it may be sent to").first.fill("api.example.org")
        await page.get_by_label("Tools that may send it").first.fill("weather")
        await page.get_by_label("Name of the header or field").first.fill("Authorization")
        await page.get_by_role("button", name="Store").click()
        await expect(page.get_by_text("Keep the recovery key")).to_be_visible()
        await expect(page.locator("[id^=secret]").first).to_contain_text(
            "weather may send it to https://api.example.org:443, as header Authorization"
        )
        await secrets.vault.put(web.backend.owner.id, "WEATHER_KEY", "owners-value", shared=False)
        await secrets.look()
        await expect(page.get_by_text("hidden by your own value")).to_be_visible()
        await page.get_by_label("Replace the value of WEATHER_KEY").first.click()
        await page.get_by_label("New value").first.fill("another-value")
        await accessible(page)
        await watched.show(f"secrets-{look}")
        await page.get_by_role("button", name="Replace").first.click()
        await expect(page.get_by_text("Yours alone")).to_be_hidden()
        assert VALUE not in await page.content()
        await page.get_by_role("button", name="Delete WEATHER_KEY").first.click()
        await expect(page.locator("article[id^=secret]")).to_have_count(1)
        await watched.assert_clean()
    assert "another-value" not in [each.value for each in await secrets.vault.opened()]


@looks
async def test_the_form_behind_a_link(browser: Browser, web: Web, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    assert web.backend.settings.secrets is not None
    now = web.backend.clock.now()
    link = web.backend.access.secret_links.issue(web.page, web.backend.owner.id, "MAIL_PASSWORD", now)
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        await page.goto(link)
        await expect(page.get_by_text("Value of MAIL_PASSWORD")).to_be_visible()
        assert "#" not in page.url
        await accessible(page)
        await watched.show(f"secret-form-{look}")
        await page.get_by_label("Value of MAIL_PASSWORD").fill(VALUE)
        await page.get_by_role("button", name="Store").click()
        await expect(page.get_by_text("Stored. You can close this page.")).to_be_visible()
        await accessible(page)
        await watched.assert_clean()
    assert [(each.row.facts.name, each.value) for each in await web.backend.settings.secrets.vault.opened()] == [
        ("MAIL_PASSWORD", VALUE)
    ]
