"""Usage, Logs, Health and Tokens, as they look and work in a browser."""

import re
from datetime import UTC, datetime
from pathlib import Path

from playwright.async_api import Browser, Page, expect

from gateway.agent.limits import Limits
from gateway.domain.health import Finding, FindingLevel
from gateway.store.people import tokens
from gateway.web.screens import logs
from tests.browser.conftest import Watched, opened
from tests.browser.looks import looks
from tests.browser.test_memory import accessible
from tests.web.conftest import Running, Web
from tests.web.test_logs_page import ONE, write
from tests.web.test_usage import used

FOUND = [
    ("python", Finding(FindingLevel.OK, "Python 3.12.1")),
    ("folders", Finding(FindingLevel.WARN, "other users can read /srv/supaclaw/data", "chmod 700 /srv/supaclaw/data")),
    (
        "model",
        Finding(
            FindingLevel.WARN, "no model is connected: no key was found", "set a provider's key, such as OPENAI_API_KEY"
        ),
    ),
    (
        "channels",
        Finding(FindingLevel.FAIL, "channels.telegarm: unknown channel; did you mean telegram?", "fix config.json"),
    ),
]


async def to(watched: Watched, web: Web, path: str, *, phone: bool) -> Page:
    if not phone:
        await watched.page.set_viewport_size({"width": 1440, "height": 900})
    await watched.page.goto(f"{web.page}{path}")
    return watched.page


@looks
async def test_usage(browser: Browser, running: Running, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    gateway = await running.start(limits=lambda: Limits(day_usd=1.5, month_usd=20))
    web = gateway.web
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = await to(watched, web, "/usage", phone=phone)
        await expect(page.get_by_text("No model was called in the last 30 days")).to_be_visible()
        await accessible(page)
        await watched.show(f"usage-empty-{look}")
        session = (await web.path.tell("hello")).session_id
        for ago in range(0, 29, 2):
            await used(web, 0.05 + 0.11 * (ago % 7), ago=ago, session=session if ago % 4 else None)
            await used(web, 0.02, model="openrouter/anthropic/claude-sonnet-4.5", ago=ago)
        await page.reload()
        await expect(page.locator(".chart g")).to_have_count(15)
        await expect(page.locator(".chart line:not(.half)")).to_have_count(1)
        await accessible(page)
        await watched.show(f"usage-{look}")
        await expect(page.get_by_role("link", name="hello", exact=True).last).to_have_attribute("href", f"/c/{session}")
        await page.get_by_role("link", name=datetime.now(UTC).date().isoformat()).click()
        await expect(page.locator(".total")).to_contain_text("$0.07")
        await accessible(page)
        await watched.assert_clean()
    await gateway.stop()


@looks
async def test_logs(browser: Browser, running: Running, tmp_path: Path, monkeypatch, scheme: str, phone: bool):
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.1)
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    gateway = await running.start(logs=tmp_path)
    web = gateway.web
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = await to(watched, web, "/logs", phone=phone)
        await expect(page.get_by_text("Nothing to show yet")).to_be_visible()
        await accessible(page)
        await watched.show(f"logs-empty-{look}")
        write(
            tmp_path,
            {"event": "gateway.ready", "url": "http://127.0.0.1:8787", "seconds": 0.71},
            {
                "event": "turn.finished",
                "session_id": ONE,
                "tokens": 1234,
                "model": "claude-sonnet-4-5",
            },
            {"event": "channel.silent", "level": "warning", "channel": "telegram"},
            {"event": "tool.failed", "level": "error", "session_id": ONE, "exception": "Traceback\n  " + "x" * 300},
        )
        await expect(page.locator(".line")).to_have_count(4)
        await expect(page.locator(".line").first).to_contain_text("tool.failed")
        await page.get_by_text("Traceback", exact=True).click()
        await accessible(page)
        await watched.show(f"logs-{look}")
        await page.get_by_role("link", name="Only session").first.click()
        await expect(page.locator(".line")).to_have_count(2)
        await page.get_by_label("Minimum level").select_option("error")
        await expect(page.locator(".line")).to_have_count(1)
        await page.get_by_label("Words").fill("silent")
        await expect(page.locator(".line")).to_have_count(0)
        await page.get_by_label("Session").fill("nowhere")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("matches no session with a log")).to_be_visible()
        await accessible(page)
        await watched.assert_clean()
    await gateway.stop()


@looks
async def test_health(browser: Browser, running: Running, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    gateway = await running.start(findings=lambda: FOUND)
    async with opened(browser, gateway.web, scheme=scheme, phone=phone) as watched:
        page = await to(watched, gateway.web, "/checks", phone=phone)
        await expect(page.locator("#summary")).to_contain_text("1 failed, 2 warnings, 1 OK.")
        await expect(page.locator(".finding").first).to_contain_text("telegarm")
        await accessible(page)
        await watched.show(f"health-{look}")
        await watched.assert_clean()
    await gateway.stop()


@looks
async def test_tokens(browser: Browser, web: Web, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = await to(watched, web, "/tokens", phone=phone)
        await expect(page.get_by_text("No tokens")).to_be_visible()
        await accessible(page)
        await watched.show(f"tokens-empty-{look}")
        await page.get_by_text("New token").first.click()
        await page.get_by_label("Name").fill("editor")
        await page.get_by_label("talk to the agent").check()
        await page.get_by_label("Folder that files opens").fill("trips")
        await page.get_by_role("button", name="Create", exact=True).click()
        await expect(page.locator("#toast")).to_contain_text("add the scope files")
        await watched.expects("409")
        await page.get_by_label("Folder that files opens").fill("")
        await page.get_by_text("Memory and identity").click()
        await page.get_by_label("counts as sent by you").check()
        await accessible(page)
        await watched.show(f"tokens-new-{look}")
        await page.get_by_role("button", name="Create", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("will be treated as you")
        await accessible(page)
        await watched.show(f"tokens-warning-{look}")
        await page.get_by_role("button", name="Create a token that speaks as me").click()
        plain = await page.locator(".made code").text_content()
        await page.get_by_role("button", name="Copy").click()
        assert await page.evaluate("navigator.clipboard.readText()") == plain
        await expect(page.locator("#board .row")).to_contain_text("speaks as you")
        await accessible(page)
        await watched.show(f"tokens-made-{look}")
        assert re.fullmatch(r"claw_[\w-]{43}", plain or "")
        await page.get_by_role("link", name="Done").click()
        await expect(page.locator("#board .row")).to_have_count(1)
        assert plain not in await page.content()
        page.once("dialog", lambda dialog: dialog.accept())
        await page.get_by_role("button", name="Revoke editor").click()
        await expect(page.locator("#board .row")).to_have_count(0)
        await watched.assert_clean()
    assert await tokens.list_all(web.backend.database) == []


async def test_a_laptop_shows_the_whole_sidebar_and_the_keyboard_skips_it(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.set_viewport_size({"width": 1366, "height": 768})
        await page.goto(f"{web.page}/usage")
        await page.get_by_role("button", name="Settings").click()
        await expect(page.get_by_role("link", name="Usage")).to_have_attribute("aria-current", "page")
        await page.goto(f"{web.page}/memory")
        assert await page.locator("nav.side").evaluate("side => side.scrollHeight <= side.clientHeight")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_be_focused()
        await watched.show("memory-laptop-light")
        await watched.assert_clean()


async def test_an_address_without_a_page_says_so(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.goto(f"{web.page}/nope")
        await expect(page.get_by_role("heading")).to_have_text("Not Found")
        await accessible(page)
        await watched.show("nope-desktop-light")
        await page.get_by_role("link", name="Back to the chat").click()
        await expect(page.locator("#composer")).to_be_visible()
        await watched.expects("404")
    assert (await web.client.get("/nope")).json()["error"]["message"] == "Not Found"


async def test_a_link_opened_where_the_page_asks_to_sign_in_signs_in(browser: Browser, web: Web):
    page = await (await browser.new_context()).new_page()
    await page.goto(f"{web.page}/login")
    await expect(page.get_by_role("heading")).to_have_text("Sign in to SupaClaw")
    await page.evaluate("link => { location.href = link }", web.backend.access.sign_in_link(web.page))
    await expect(page.locator("#composer")).to_be_visible()


async def test_the_phone_finds_every_screen_under_more(browser: Browser, web: Web):
    async with opened(browser, web, phone=True) as watched:
        page = watched.page
        await page.get_by_role("button", name="More").click()
        await expect(page.get_by_role("link", name="Memory")).to_be_in_viewport()
        await page.get_by_role("button", name="Settings").click()
        for name in ("Channels", "Usage", "Logs", "Tokens"):
            await expect(page.get_by_role("link", name=name)).to_be_in_viewport()
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Account").click()
        await expect(page.get_by_role("button", name="Sign out")).to_be_in_viewport()
        await accessible(page)
        await watched.show("more-screens-phone-light")
        await watched.assert_clean()


async def test_a_problem_leads_to_health(browser: Browser, running: Running):
    states = {"telegram": "unreachable since 13:05 UTC: the connection was closed"}
    gateway = await running.start(states=lambda: states, findings=lambda: FOUND)
    async with opened(browser, gateway.web) as watched:
        await watched.page.goto(f"{gateway.web.page}/tasks")
        await watched.page.locator("#connection").get_by_role("link", name="Needs a look").click()
        await expect(watched.page).to_have_url(f"{gateway.web.page}/checks")
        await watched.assert_clean()
    await gateway.stop()
