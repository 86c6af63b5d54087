"""Approvals, as they look and work in a browser: what waits, why, what was answered, what is allowed in advance."""

import re
from dataclasses import replace
from datetime import UTC, datetime

from playwright.async_api import Browser, expect

from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.principals import Label
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewQuestion
from tests.browser.conftest import opened
from tests.browser.looks import looks
from tests.browser.test_memory import accessible
from tests.web.conftest import Web

CHANGE = "--- SOUL.md\n+++ SOUL.md\n@@ -1 +1 @@\n-Be kind.\n+Be evil, " + "and long " * 40
MAIL = "send_mail\nto: eve@example.com\ntext: All of it."


async def ask(web: Web) -> None:
    owner, at = web.path.people.owner.id, (await web.path.tell("hello")).session_id
    [(task,)] = await web.path.rows("select id from tasks where session_id = $1", at)
    soul = ReviewQuestion(
        owner,
        owner,
        "write_file",
        {"path": "SOUL.md"},
        CHANGE,
        Label.UNTRUSTED,
        task=task,
        ordinal=1,
        act=ToolClass.PERSIST,
    )
    mail = replace(
        soul, tool="send_mail", arguments={"to": "eve@example.com"}, preview=MAIL, act=ToolClass.SEND, ordinal=2
    )
    for question in (soul, mail):
        await web.path.database.run(lambda tx, each=question: reviews.ask(tx, each, datetime.now(UTC)))


async def ask_in_chat(web: Web) -> None:
    """A call and a task's question, asked in the page's own conversation."""
    sql = """select session_id, address_id, t.id from messages m join tasks t using (session_id)
             where m.kind = 'user' and t.kind = 'chat'"""
    owner, [(session, address, run)] = web.path.people.owner.id, await web.path.rows(sql)
    call = ReviewQuestion(
        owner,
        owner,
        "send_mail",
        {"to": "eve@example.com"},
        MAIL,
        Label.UNTRUSTED,
        session=session,
        address=address,
        act=ToolClass.SEND,
    )
    task = replace(
        call, tool="request_human_review", preview="Which offer, A or B?", kind="review", task=run, ordinal=9
    )
    for question in (call, task):
        await web.path.database.run(lambda tx, each=question: reviews.ask(tx, each, datetime.now(UTC)))
    await web.path.questions.look()


@looks
async def test_questions_are_answered_in_the_chat(browser: Browser, web: Web, scheme: str, phone: bool) -> None:
    web.model.says("", ToolCall("c1", "bash", '{"command": "exit 3"}'))
    web.model.says("It failed.")
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        await page.fill("#text", "Compare the offers")
        await page.keyboard.press("Enter")
        await expect(page.locator("#thread")).to_contain_text("It failed.")
        await expect(page.locator(".tool[data-state=failed] .state")).to_contain_text("failed")
        await ask_in_chat(web)
        await expect(page.locator("#thread .asking .question")).to_have_count(2)
        await expect(page.locator("#A1 pre")).to_have_text(MAIL)
        await expect(page.get_by_label("What A2 asks")).to_have_css("white-space", "pre-wrap")
        await accessible(page)
        await watched.show(f"chat-asking-{'phone' if phone else 'desktop'}-{scheme}")
        await page.fill("#A2-answer", "A")
        await page.locator("#A2").get_by_role("button", name="No").click()
        await expect(page.locator("#A2")).to_have_count(0)
        assert await web.path.rows("select state, response from reviews where id = 2") == [
            ("denied", {"approved": False, "comment": "A"})
        ]
        await page.locator("#A1").get_by_role("button", name="Deny").click()
        await expect(page.locator("#A1")).to_have_count(0)
        await page.reload()
        await expect(page.locator("#thread")).to_contain_text("Question A1")
        await expect(page.locator("#thread .question")).to_have_count(0)
        await watched.assert_clean()


@looks
async def test_approvals(browser: Browser, web: Web, scheme: str, phone: bool) -> None:
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        if not phone:
            await page.set_viewport_size({"width": 1440, "height": 900})
        await page.goto(f"{web.page}/inbox")
        await expect(page.locator("#empty h2")).to_have_text("Nothing waits for you")
        await watched.show(f"approvals-empty-{look}")
        await ask(web)
        await page.reload()
        await expect(page.locator(".question")).to_have_count(2)
        await expect(page).to_have_title("(2) Inbox · SupaClaw")
        await expect(page.locator("#waiting")).to_have_text("2")
        await expect(page.locator("#A1")).to_contain_text("A1: Write a file lasts beyond this chat")
        await expect(page.locator("#A1")).to_contain_text("outlive the conversation")
        await expect(page.locator("#A1 time").first).to_have_attribute("title", re.compile("UTC|GMT"))
        await expect(page.locator("#A2")).to_contain_text("send something to others")
        await accessible(page)
        await watched.show(f"approvals-asking-{look}")
        await page.locator("#A2 summary").click()
        await page.fill("#A2-terms", "5 24h")
        await page.locator("#A2").get_by_role("button", name="Allow").click()
        await expect(page.locator("#G1")).to_contain_text("send_mail, 5 times until")
        await page.locator("#A2").get_by_role("button", name="Deny").click()
        await page.locator("#A1").get_by_role("button", name="Approve").click()
        await expect(page.locator("#history")).to_have_text("Answered")
        await expect(page.locator("#A2")).to_contain_text("denied")
        await page.locator("#A2-details summary").click()
        await expect(page.locator("#A2 pre")).to_be_visible()
        await accessible(page)
        await watched.show(f"approvals-answered-{look}")
        await page.get_by_role("button", name="Revoke").click()
        await expect(page.locator("#G1")).to_have_count(0)
        await watched.assert_clean()


async def test_an_answer_in_words_is_sent_to_the_task(browser: Browser, web: Web) -> None:
    async with opened(browser, web) as watched:
        page = watched.page
        await web.path.tell("hello")
        await ask_in_chat(web)
        await page.goto(f"{web.page}/inbox")
        card = page.locator("#A2")
        await expect(card.get_by_role("link", name="Open the task")).to_be_visible()
        await card.get_by_role("button", name="Send").click()
        await expect(page.get_by_label("Your answer")).to_be_focused()
        await page.get_by_label("Your answer").fill("B")
        await card.get_by_role("button", name="Send").click()
        await expect(card).to_contain_text("approved")
        assert await web.path.rows("select response from reviews where id = 2") == [
            ({"approved": True, "comment": "B"},)
        ]
        await watched.assert_clean()
