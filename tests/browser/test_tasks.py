"""Tasks, as they look and work in a browser: a tree, its questions and traces, a fork beside its source, cancelling."""

from playwright.async_api import Browser, expect

from tests.browser.conftest import opened
from tests.browser.looks import looks
from tests.browser.test_memory import accessible
from tests.browser.test_screens import to
from tests.web.conftest import Web
from tests.web.test_tasks import ASK, start
from tests.web.test_tasks_page import children, finished, until


@looks
async def test_tasks(browser: Browser, web: Web, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        watched.page.on("dialog", lambda dialog: dialog.accept())
        page = await to(watched, web, "/tasks", phone=phone)
        await accessible(page)
        id = await finished(web, "The second offer is the best one.\nIt is delivered in May.")
        await expect(page.get_by_role("link", name="count")).to_be_visible()
        await children(web, id, 3)
        web.model.says(ASK)
        asks = (await start(web, input="Write to the landlord about the heating, which is cold")).json()["id"]
        await expect(page.get_by_text("A1 asks you")).to_be_visible()
        await accessible(page)
        await watched.show(f"tasks-{look}")

        await page.goto(f"{web.page}/tasks/{id}")
        await page.get_by_text("Trace").first.click()
        await page.get_by_text("Result").first.click()
        await expect(page.get_by_role("button", name="Fork from")).to_be_visible()
        await accessible(page)
        await watched.show(f"task-{look}")
        web.model.says("The third offer.")
        await page.get_by_role("button", name="Fork from").click()
        compared = page.get_by_role("link", name="compared with this one")
        there = await compared.get_attribute("href")
        async with web.sign_in() as other:
            await until(other, str(there), "The third offer.")
        await compared.click()
        await expect(page.get_by_text("The first step is alike")).to_be_visible()
        await accessible(page)
        await watched.show(f"compare-{look}")

        await page.goto(f"{web.page}/tasks/{asks}")
        await expect(page.get_by_text("Waits for your answer")).to_be_visible()
        await accessible(page)
        await watched.show(f"task-asks-{look}")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_text("cancelled")).to_be_visible()
        await expect(page.get_by_text("Waits for your answer")).to_have_count(0)
        await watched.assert_clean()
