"""The screen Conversations in a browser: found, opened, gone on with, renamed, exported; at both sizes and schemes."""

import re

import pytest
from playwright.async_api import Browser, expect

from gateway.domain.conversation.inbound import Address
from gateway.domain.principals import Label
from tests.browser.conftest import Watched, opened
from tests.browser.looks import looks
from tests.browser.test_memory import accessible
from tests.web.conftest import Web
from tests.web.test_conversations import HOSTILE, TELEGRAM, talk

pytestmark = pytest.mark.thorough

LONG = "Die Donaudampfschifffahrtsgesellschaftskapitänsmütze, die im Flur hängt, braucht einen neuen Platz, wo denn? "


async def filled(web: Web) -> str:
    """Some weeks of talking: every channel, long and hostile titles, a run by itself."""
    await talk(web, "Water the plants", "Done.", unattended=True)
    await talk(web, HOSTILE, "No.", at=Address("api", "token", "c1"), label=Label.UNTRUSTED)
    await talk(web, LONG * 3, "Im Keller.", at=Address("slack", "team", "D1"))
    await talk(web, "明天的天气怎么样？", "晴。", at=Address("whatsapp", "me", "49170"))
    await talk(web, "x" * 300, "y" * 300, at=Address("terminal", "local", "main"))
    return str(
        await talk(
            web, "Plan a trip to Lisbon", "By train, along the **Tejo**?", "Yes", "Booked.", at=TELEGRAM, ended=True
        )
    )


async def look_at(watched: Watched, name: str, look: str) -> None:
    await accessible(watched.page)
    await watched.show(f"{name}-{look}")


@looks
async def test_a_conversation_is_found_opened_named_and_gone_on_with(
    browser: Browser, web: Web, scheme: str, phone: bool
):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        if not phone:
            await page.set_viewport_size({"width": 1440, "height": 900})
        await page.get_by_role("link", name="All chats", exact=True).click()
        await expect(page.get_by_role("heading", name="No conversations yet")).to_be_visible()
        await look_at(watched, "conversations-empty", look)
        trip = await filled(web)
        await page.reload()
        await expect(page.locator("article.conversation")).to_have_count(5)
        await look_at(watched, "conversations", look)
        await page.get_by_role("link", name="Automation").click()
        await expect(page.locator("article.conversation")).to_have_count(1)
        await look_at(watched, "conversations-automation", look)
        await page.get_by_role("link", name="Chats", exact=True).click()

        await page.fill("#q", "tejo")
        await expect(page.locator("mark")).to_have_text("Tejo")
        await look_at(watched, "conversations-found", look)
        await page.locator(".conversation p a").click()
        await expect(page).to_have_url(re.compile(rf"/c/{trip}\?at=\d+#m\d+"))
        await expect(page.locator(".message:target")).to_be_in_viewport()
        await look_at(watched, "conversation", look)

        await page.get_by_text("Rename").click()
        await page.get_by_label("Title").fill("Lisbon in May")
        await look_at(watched, "conversation-rename", look)
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("heading", name="Lisbon in May")).to_be_visible()
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Markdown").click()
        assert (await download.value).suggested_filename.endswith("-lisbon-in-may.md")

        await page.get_by_role("button", name="Continue").click()
        await expect(page.locator(".notice")).to_contain_text("This chat continues the conversation of")
        await expect(page.locator(".user").first).to_contain_text("Plan a trip to Lisbon")
        await page.fill("#text", "And back?")
        await page.keyboard.press("Enter")
        await expect(page.locator(".assistant").last).to_contain_text("re: And back?")
        await look_at(watched, "conversation-gone-on", look)
        await watched.assert_clean()


async def test_a_new_chat_keeps_the_old_one_in_reach(browser: Browser, web: Web):
    async with opened(browser, web, phone=True) as watched:
        page = watched.page
        await page.fill("#text", "My bike is blue")
        await page.keyboard.press("Enter")
        await expect(page.locator(".assistant:not(.live)")).to_contain_text("re: My bike is blue")
        await expect(page.locator("#empty")).to_be_hidden()
        await page.get_by_role("link", name="New chat").click()
        await expect(page.get_by_role("button", name="Read a file and say what matters")).to_be_visible()
        await expect(page.locator("#text")).to_be_focused()
        await look_at(watched, "chat-new", "phone-light")
        await page.get_by_role("link", name="Earlier chats").click()
        await page.get_by_role("link", name="My bike is blue").click()
        await expect(page).to_have_url(f"{web.page}/")
        await expect(page.locator(".user")).to_contain_text("My bike is blue")
        await watched.assert_clean()


async def test_renaming_in_the_list_keeps_what_is_looked_for(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await filled(web)
        await page.goto(f"{web.page}/c?q=tejo")
        await page.get_by_text("Rename").click()
        await page.get_by_label("Title").fill("Lisbon")
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".title")).to_have_text("Lisbon")
        await expect(page).to_have_url(re.compile(r"\?q=tejo$"))
        await watched.assert_clean()
