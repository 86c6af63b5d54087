"""The thinking of a model, collapsed above its answer, and the choice of model and level beside the composer."""

import pytest
from playwright.async_api import Browser, expect

from gateway.domain.conversation.model import ThinkingDelta, ToolCall
from gateway.llm.client import Description
from tests.browser.conftest import opened
from tests.web.conftest import Web
from tests.web.scripted import Wait

pytestmark = pytest.mark.thorough

NAMES = ("acme/large-9", "acme/small-9", "other/mid-3")


@pytest.mark.parametrize("phone", [False, True])
async def test_it_is_folded_while_it_streams_and_afterwards(browser: Browser, web: Web, phone: bool):
    usual = Description(NAMES[0], "a test", NAMES[:1], (), None, NAMES)
    object.__setattr__(web.backend.settings, "model", lambda: usual)
    web.path.current.model.describe = lambda: Description(NAMES[0], "a test", NAMES, ())
    waits, call = Wait(), ToolCall("c1", "read_file", '{"path": "USER.md"}')
    web.model.says(ThinkingDelta("First I have to look. "), call)
    web.model.says(ThinkingDelta("It is <b>in there</b>,\n"), ThinkingDelta("I think."), waits, "Found it.")
    async with opened(browser, web, phone=phone) as watched:
        page = watched.page
        await page.set_viewport_size({"width": 390, "height": 844} if phone else {"width": 1440, "height": 900})
        await page.fill("#text", "Where is it?")
        await page.click("#send")
        await waits.reached.wait()
        live = page.locator("#live .thought")
        await expect(live.locator("summary")).to_have_text("Thinking for 0 s")
        await expect(live.locator("#live-thought-text")).to_be_hidden()
        await live.locator("summary").click()
        await expect(live.locator("#live-thought-text")).to_have_text("It is <b>in there</b>,\nI think.")
        await watched.show(f"thinking-live-{phone}")
        waits.over.set()
        await expect(page.locator(".assistant:not(.live) .md")).to_have_text("Found it.")
        thoughts = page.locator(".thread > details.thought")
        await expect(thoughts).to_have_count(2)
        await expect(thoughts.first.locator("summary")).to_have_text("Thought for 12 s")
        await thoughts.last.locator("summary").click()
        await expect(thoughts.last.locator("div").last).to_have_text("It is <b>in there</b>,\nI think.")
        await watched.show(f"thinking-shot-{phone}")
        await page.click("#chosen")
        menu = page.locator("#choose")
        await expect(menu).to_be_visible()
        await watched.show(f"thinking-menu-{phone}")
        await menu.get_by_role("button", name="high").click()
        await expect(menu).to_be_hidden()
        await expect(page.locator("#chosen-level")).to_have_text("high")
        await expect(page.locator(".message.notice").last).to_contain_text("high, until /think default")
        await page.reload()
        await expect(page.locator("#chosen-level")).to_have_text("high")
        await expect(page.locator(".thread > details.thought")).to_have_count(2)
        await page.click("#chosen")
        await page.select_option("#choose-until", " for 8 hours")
        await watched.show(f"thinking-until-{phone}")
        await menu.get_by_role("button", name="other/mid-3").click()
        button = page.locator("#chosen")
        await expect(button).to_contain_text("mid-3until ")
        await expect(page.locator(".message.notice").last).to_contain_text("other/mid-3, until ")
        await web.path.rows("update addresses set model_until = now() + interval '2 seconds' returning id")
        await page.reload()
        await expect(button).to_contain_text("mid-3until ")
        await expect(button).to_contain_text("large-9")
        await page.fill("#text", "/model small")
        await page.keyboard.press("Enter")
        await expect(button).to_contain_text("small-9")
        await expect(button).not_to_contain_text("until")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
