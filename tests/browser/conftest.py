"""A real browser in front of the real web; every page watches for console errors and requests to other hosts."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.fakes.eventually import eventually
from tests.web.conftest import Web, running, web

__all__ = ["running", "web"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MICROPHONE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
"""One that hums, and is allowed without a question."""
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


@dataclass
class Watched:
    """A page, and everything that should not happen on it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    bytes: int = 0

    async def show(self, name: str) -> None:
        """Keep a picture where somebody asked for pictures."""
        if folder := os.environ.get("SCREENSHOTS"):
            await self.page.screenshot(path=Path(folder) / f"{name}.png")

    async def expects(self, failure: str) -> None:
        """The browser notes every refusal as an error, perhaps a moment later; this one is the point of the test."""
        await eventually(lambda: any(failure in error for error in self.errors))
        [noted] = [error for error in self.errors if failure in error]
        self.errors.remove(noted)

    async def assert_clean(self) -> None:
        assert self.errors == []
        assert self.elsewhere == []
        assert await self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no chromium: install it, CI has to look at the page")
        pytest.skip("no chromium on this machine")
    expect.set_options(timeout=30_000)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *MICROPHONE])
        yield browser
        await browser.close()


@asynccontextmanager
async def opened(browser: Browser, web: Web, *, scheme: str = "light", phone: bool = False) -> AsyncIterator[Watched]:
    """The chat, signed in by a link, as a person would."""
    context = await browser.new_context(viewport=PHONE if phone else DESKTOP, color_scheme=scheme)
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = await context.new_page()
    watched = Watched(page)
    page.on("console", lambda message: watched.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: watched.errors.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(web.page) else watched.elsewhere.append(asked.url))
    await page.goto(web.backend.access.sign_in_link(web.url))
    await page.wait_for_url(f"{web.page}/")
    await page.wait_for_selector("#connection[data-state=on]")
    yield watched
    await context.close()


async def go_to(watched: Watched, screen: str, *, phone: bool) -> Page:
    """By the navigation; whatever the page asks is agreed to."""
    page = watched.page
    page.on("dialog", lambda dialog: dialog.accept())
    bar = page.get_by_role("navigation", name="Main")
    if phone:
        await bar.get_by_role("button", name="More").click()
    if not await bar.get_by_role("link", name=screen, exact=True).count():
        await bar.get_by_role("button", name="Settings").click()
    await bar.get_by_role("link", name=screen, exact=True).click()
    return page
