"""Tasks, as they look and work in a browser: a tree, its questions and traces, a fork beside its source, cancelling."""

import pytest
from playwright.async_api import Browser, expect

from gateway.domain.conversation.model import ToolCall
from tests.browser.conftest import opened
from tests.browser.looks import looks
from tests.browser.test_memory import accessible
from tests.browser.test_screens import to
from tests.web.conftest import Web
from tests.web.scripted import Wait
from tests.web.test_tasks import ASK, start
from tests.web.test_tasks_page import children, finished, until

pytestmark = pytest.mark.thorough


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
        await expect(page.get_by_role("heading", name="Waits for your answer")).to_be_in_viewport()
        await expect(page.get_by_role("button", name="Yes", exact=True).first).to_be_in_viewport()
        await accessible(page)
        await watched.show(f"tasks-{look}")
        await page.get_by_label("Task", exact=True).fill("LANDLORD")
        await expect(page.locator(".row.task")).to_have_count(1)
        await expect(page.get_by_label("Task", exact=True)).to_be_focused()
        await expect(page).to_have_url(f"{web.page}/tasks?text=LANDLORD&sort=newest")

        await page.goto(f"{web.page}/tasks/{id}")
        await page.get_by_text("Timeline").click()
        await page.get_by_text("Trace").first.click()
        await expect(page.get_by_text("The second offer is the best one.")).to_be_visible()
        await page.locator(".trace summary").first.click()
        await expect(page.locator(".trace pre").first).to_contain_text("The second offer")
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
        await expect(page.get_by_role("heading", name="Waits for your answer")).to_be_in_viewport()
        await accessible(page)
        await watched.show(f"task-asks-{look}")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_text("cancelled")).to_be_visible()
        await expect(page.get_by_role("heading", name="Waits for your answer")).to_have_count(0)
        await watched.assert_clean()


async def test_an_open_trace_grows_and_a_question_is_answered_in_place(browser: Browser, web: Web):
    async with opened(browser, web, phone=True) as watched:
        page, held = watched.page, Wait()
        web.model.says(held, ToolCall("", "save_intermediate_data", '{"data": {"offers": 3}}'))
        web.model.says(ASK)
        id = (await start(web)).json()["id"]
        await page.goto(f"{web.page}/tasks/{id}")
        await page.get_by_text("Trace").click()
        await expect(page.get_by_text("Nothing yet.")).to_be_visible()
        held.over.set()
        steps = page.locator(".trace li")
        await expect(steps.filter(has_text="save_intermediate_data")).to_have_count(1)
        await expect(page.get_by_text("Shall I?")).to_be_in_viewport()
        await expect(page.get_by_text(": question of a task")).to_be_in_viewport()
        web.model.says("Done.")
        await page.get_by_role("button", name="Yes", exact=True).last.click()
        await expect(page.get_by_text("1 of 1 task is over")).to_be_visible()
        await expect(steps.filter(has_text="A1")).to_have_count(2)
        await watched.assert_clean()
