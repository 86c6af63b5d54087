import asyncio

import pytest
from playwright.async_api import Browser, FilePayload, Route, expect

from tests.browser.conftest import opened
from tests.browser.looks import looks
from tests.web.conftest import MOST, Web
from tests.web.uploading import png

pytestmark = pytest.mark.thorough

HOSTILE = "Rechnung \u202egnp.exe <img src=x onerror=alert(1)> " + "sehr lang " * 12 + ".pdf"


def file(name: str, content: bytes = b"words", mime: str = "text/plain") -> FilePayload:
    return FilePayload(name=name, mimeType=mime, buffer=content)


@looks
async def test_files_are_chosen_sent_and_shown(browser: Browser, web: Web, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        chosen = [file("notes.txt"), file(HOSTILE, b"%PDF", "application/pdf"), file("cat.png", png(), "image/png")]
        await page.set_input_files("#pick", [*chosen, file("large.bin", b"x" * (MOST + 200_000))])
        await expect(page.locator("#files .failed")).to_have_count(1)
        await expect(page.locator("#files .failed small")).to_contain_text("files of up to 1 MB are taken")
        await expect(page.locator("#files progress:visible")).to_have_count(0)
        await watched.show(f"files-chosen-{look}")
        await watched.expects("status of 413")
        await page.fill("#text", "Compare these")
        await page.click("#send")
        await expect(page.locator("#toast")).to_contain_text("Remove the file")
        await page.get_by_role("button", name="Remove large.bin").click()
        await expect(page.locator("#files li")).to_have_count(3)
        await page.click("#send")
        await expect(page.locator(".message.user .file")).to_have_count(3)
        await expect(page.locator("#files")).to_be_hidden()
        await expect(page.locator(".message.user .pictured img")).to_be_visible(timeout=60_000)
        await expect(page.locator(".message.user .file small").first).to_have_text("5 B")
        await page.evaluate("document.getElementById('chat').scrollTop = 0")
        await watched.show(f"files-read-{look}")
        await watched.assert_clean()


async def test_files_can_be_dropped_and_pasted_and_survive_a_reload(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.evaluate(
            """() => {
              const dropped = new DataTransfer(), pasted = new DataTransfer();
              dropped.items.add(new File(["one"], "dropped.txt"));
              dropped.items.add(new File(["two"], "too.txt"));
              pasted.items.add(new File(["three"], "pasted.txt"));
              document.body.dispatchEvent(new DragEvent("dragover", { dataTransfer: dropped, bubbles: true }));
              window.over = document.getElementById("composer").classList.contains("over");
              document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, bubbles: true }));
              document.getElementById("text").dispatchEvent(
                new ClipboardEvent("paste", { clipboardData: pasted, bubbles: true }));
            }"""
        )
        assert await page.evaluate("window.over")
        names = page.locator("#files .name")
        await expect(names).to_have_text(["dropped.txt", "too.txt", "pasted.txt"])
        await expect(page.locator("#files progress:visible")).to_have_count(0)
        await page.reload()
        await expect(names).to_have_text(["dropped.txt", "too.txt", "pasted.txt"])
        await page.get_by_role("button", name="Remove too.txt").press("Enter")
        await expect(page.get_by_role("button", name="Remove pasted.txt")).to_be_focused()
        await page.focus("#text")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message.user .file .name")).to_have_text(["dropped.txt", "pasted.txt"])
        async with page.expect_download() as download:
            await page.locator(".message.user .file .name").first.click()
        assert (await download.value).suggested_filename == "dropped.txt"
        await watched.assert_clean()


async def test_a_message_waits_for_its_files(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page, let_go = watched.page, asyncio.Event()

        async def slow(route: Route) -> None:
            await let_go.wait()
            await route.continue_()

        await page.route("**/chat/files", slow)
        await page.set_input_files("#pick", file("slow.txt"))
        await expect(page.locator("#files progress")).to_be_visible()
        await page.fill("#text", "look")
        await page.keyboard.press("Enter")
        await expect(page.locator("#toast")).to_contain_text("as soon as its files are uploaded")
        await expect(page.locator(".message.user")).to_have_count(0)
        let_go.set()
        await expect(page.locator(".message.user .name")).to_have_text("slow.txt")
        await expect(page.locator("#text")).to_have_value("")
        await watched.assert_clean()


async def test_an_upload_that_broke_off_can_be_tried_again(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.route("**/chat/files", lambda route: route.abort(), times=1)
        await page.set_input_files("#pick", file("notes.txt"))
        await expect(page.locator("#files small")).to_have_text("The connection was lost.")
        await watched.expects("ERR_FAILED")
        await page.get_by_role("button", name="Try again").click()
        await expect(page.locator("#files small")).to_have_text("5 B")
        await watched.assert_clean()
