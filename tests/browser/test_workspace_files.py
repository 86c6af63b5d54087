import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, expect

from tests.browser.conftest import go_to, opened
from tests.browser.looks import looks
from tests.web.conftest import Web
from tests.web.test_files_page import LOCKED, put
from tests.web.uploading import png

pytestmark = pytest.mark.thorough

TRIP = "# Tejo in May\n\n- train at **9:14**\n- [x] book the hut\n\n| Day | Way |\n|---|---|\n| Fri | 12 km |\n"


@looks
async def test_files_are_found_read_edited_and_brought_back(browser: Browser, web: Web, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    put(web, "AGENTS.md", LOCKED)
    put(web, "notes/trip.md", TRIP)
    put(web, "notes/list.txt", "milk\nbread\n")
    put(web, "uploads/2026-05-01/map.png", png())
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        if not phone:
            await watched.page.set_viewport_size({"width": 1440, "height": 900})
        page = await go_to(watched, "Files", phone=phone)
        await expect(page.locator(".tree .badge")).to_have_text("locked")
        await watched.show(f"files-{look}")
        assert (await Axe().run(page)).violations_count == 0
        await page.locator(".tree summary", has_text="notes").click()
        await page.locator(".tree").get_by_text("trip.md").click()
        await expect(page.locator(".shown h1")).to_have_text("Tejo in May")
        await page.get_by_text("Edit", exact=True).click()
        await page.get_by_label("Text of trip.md").fill(TRIP.replace("9:14", "10:02"))
        await watched.show(f"files-edit-{look}")
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        await page.get_by_role("button", name="Save").click()
        await expect(page.locator(".md strong")).to_have_text("10:02")
        assert (web.backend.files.root / "notes/trip.md").read_text() == TRIP.replace("9:14", "10:02")
        await watched.show(f"files-reading-{look}")
        await page.goto(f"{web.page}/files?path=uploads/2026-05-01/map.png")
        await expect(page.locator(".badge.doubt")).to_have_text("not verified")
        await expect(page.locator("img.picture")).to_have_js_property("naturalWidth", 240)
        await watched.show(f"files-picture-{look}")
        await page.goto(f"{web.page}/files?path=notes")
        await page.get_by_text("Upload a file").click()
        await page.get_by_label("File", exact=True).set_input_files(
            {"name": "more.txt", "mimeType": "text/plain", "buffer": b"eggs"}
        )
        await page.get_by_role("button", name="Upload").click()
        await expect(page.locator(".tree").get_by_text("more.txt")).to_be_visible()
        async with page.expect_download() as saved:
            await page.get_by_role("link", name="Download as zip").click()
        assert (await saved.value).suggested_filename == "notes.zip"
        await page.locator(".tree").get_by_text("list.txt").click()
        await page.get_by_role("button", name="Delete notes/list.txt").click()
        await expect(page.locator(".tree").get_by_text("list.txt")).to_have_count(0)
        await page.get_by_role("link", name="Checkpoints").click()
        await page.get_by_text("Compare or restore").click()
        await page.get_by_label("Lines of notes/list.txt").click()
        await expect(page.locator(".removed").nth(1)).to_have_text("-milk")
        await watched.show(f"checkpoints-{look}")
        found = await Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        await page.get_by_role("button", name="Restore notes/list.txt").click()
        await expect(page.locator(".checkpoint")).to_have_count(1)
        await expect(page.get_by_label("Lines of notes/list.txt")).to_have_count(0)
        assert (web.backend.files.root / "notes/list.txt").read_text() == "milk\nbread\n"
        await watched.assert_clean()
