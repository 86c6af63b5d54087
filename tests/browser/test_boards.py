from collections.abc import Mapping

import pytest
from playwright.async_api import Browser, Page, expect

from gateway.domain.channels.channel import Login
from tests.browser.conftest import go_to, opened
from tests.browser.looks import looks
from tests.fakes.eventually import eventually
from tests.fakes.login import FakeLogin
from tests.web.conftest import Running, Web
from tests.web.test_people import ask

pytestmark = pytest.mark.thorough

HOSTILE = "<b>Bo</b> \u202eevil\u200b " + "Wolfeschlegelsteinhausenbergerdorff" * 3


@looks
async def test_people_ask_are_let_in_and_sent_away(browser: Browser, web: Web, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = await go_to(watched, "People", phone=phone)
        await expect(page.locator("#nobody h2")).to_have_text("No access requests")
        await watched.show(f"people-empty-{look}")
        await ask(web, "Grace Hopper", "ABCDEFGH", "1234567")
        await ask(web, HOSTILE, "JKLMNPQR", "-" * 40)
        await expect(page.locator(".row.asks")).to_have_count(2)
        await expect(page.locator("#nobody")).to_be_hidden()
        await watched.show(f"people-asking-{look}")
        await page.get_by_role("button", name="Approve").first.click()
        await expect(page.locator(".row[id^=in]")).to_contain_text("Grace Hopper")
        await watched.show(f"people-let-in-{look}")
        await page.get_by_role("button", name="Deny").click()
        await page.get_by_role("button", name="Revoke").click()
        await expect(page.locator("#nobody h2")).to_be_visible()
        assert await web.backend.channels.pairing.admitted() == []
        await watched.assert_clean()


@looks
async def test_a_messenger_is_connected(browser: Browser, running: Running, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    login = FakeLogin(Login("waiting", qr="2@" + "Ab3" * 70))
    channels: dict[str, str] = {}
    started = await running.start(states=lambda: channels, logins=lambda: {"whatsapp": login})
    async with opened(browser, started.web, scheme=scheme, phone=phone) as watched:
        page = await go_to(watched, "Channels", phone=phone)
        await expect(page.locator("#empty h2")).to_have_text("No messenger is connected")
        await watched.show(f"channels-empty-{look}")
        channels |= {
            "slack": "shut: config.json channels.slack.bot_token is not valid; " + "see the app's page " * 8,
            "telegram": "open",
            "whatsapp": "opening",
        }
        first = await page.locator(".qr svg path").last.get_attribute("d")
        await watched.show(f"channels-qr-{look}")
        await page.fill("#phone-whatsapp-number", "+49 170 12")
        login.state = Login("waiting", qr="2@" + "xY9" * 70, problem="the last code was too old")
        await expect(page.locator("#login-whatsapp .problem")).to_be_visible()
        assert await page.locator(".qr svg path").last.get_attribute("d") != first
        await expect(page.locator("#phone-whatsapp-number")).to_be_focused()
        await page.keyboard.type("00000")
        await page.keyboard.press("Enter")
        await expect(page.locator("#toast")).to_contain_text("wait an hour")
        await watched.expects("status of 409")
        await page.fill("#phone-whatsapp-number", "+49 170 1234567")
        await page.get_by_role("button", name="Get a code").click()
        await expect(page.locator("#login-whatsapp .code")).to_have_text("ABCD-EFGH")
        await watched.show(f"channels-code-{look}")
        login.state = Login("connected", account="+49 170 1234567")
        await expect(page.locator("#login-whatsapp")).to_contain_text("Connected as +49 170 1234567")
        await expect(page.locator("#phone-whatsapp")).to_have_count(0)
        await watched.show(f"channels-connected-{look}")
        await page.get_by_role("button", name="Log out").click()
        await expect(page.locator("#login-whatsapp")).to_contain_text("Logged out")
        await watched.assert_clean()
    await started.stop()


async def turn(page: Page, *, hidden: bool) -> None:
    """Hide the tab, or show it again, as far as the page can tell."""
    await page.evaluate(
        """hidden => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


async def test_a_hidden_tab_reads_nothing_and_catches_up_when_it_is_shown(browser: Browser, running: Running):
    reads, name = 0, "telegram"

    def states() -> Mapping[str, str]:
        nonlocal reads
        reads += 1
        return {name: "open"}

    started = await running.start(states=states)
    async with opened(browser, started.web) as watched:
        page = await go_to(watched, "Channels", phone=False)
        await expect(page.locator("#channel-telegram")).to_be_visible()
        before = reads
        await eventually(lambda: reads > before + 1)
        await turn(page, hidden=True)
        await page.wait_for_timeout(2_500)
        before = reads
        await page.wait_for_timeout(2_500)
        assert reads == before
        first = await page.query_selector("#channel-telegram")
        assert first is not None
        await turn(page, hidden=False)
        await eventually(lambda: reads > before + 1)
        assert await first.evaluate("row => row.isConnected"), "an unchanged row keeps its node"
        await turn(page, hidden=True)
        name = "slack"
        await turn(page, hidden=False)
        await expect(page.locator("#channel-slack")).to_be_visible()
        await expect(page.locator("#channel-telegram")).to_have_count(0)
        await watched.assert_clean()
    await started.stop()
