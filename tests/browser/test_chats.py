"""The sidebar, chats side by side, what one can do with each, and the palette: at every size, in both schemes."""

import re
from datetime import UTC, datetime

import pytest
from playwright.async_api import Browser, Page, Route, expect

from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.principals import Label
from gateway.store.people import pairings
from tests.browser.conftest import opened
from tests.browser.looks import looks
from tests.browser.test_approvals import ask_in_chat
from tests.browser.test_conversations import filled
from tests.browser.test_memory import accessible
from tests.fakes.eventually import eventually
from tests.web.conftest import Web
from tests.web.scripted import Wait
from tests.web.test_approvals import ask
from tests.web.test_conversations import TELEGRAM, talk

pytestmark = pytest.mark.thorough


async def write(page: Page, text: str, answer: str = "") -> None:
    await page.fill("#text", text)
    await page.keyboard.press("Enter")
    await expect(page.locator(".assistant:not(.live)").last).to_contain_text(answer or f"re: {text}")


async def test_chats_run_side_by_side_and_no_place_is_lost(browser: Browser, web: Web):
    writing = Wait()
    async with opened(browser, web) as watched:
        page = watched.page
        web.model.says("Half of the", writing, " first.")
        await page.fill("#text", "The bike is blue")
        await page.keyboard.press("Enter")
        await expect(page.locator("#live-tail")).to_have_text("Half of the")
        await page.get_by_role("link", name="New chat").click()
        await expect(page.locator("#title")).to_have_text("New chat")
        await page.fill("#text", "a draft")
        await page.reload()
        await expect(page.locator("#text")).to_have_value("a draft")
        await write(page, "The car is red")
        await expect(page).to_have_url(re.compile(r"/c/[0-9a-f-]{36}$"))
        await expect(page.locator("#chats a[aria-current]")).to_have_text("The car is red")
        await expect(page.locator("#title")).to_have_text("The car is red")
        writing.over.set()
        await page.reload()
        await expect(page.locator(".user")).to_contain_text("The car is red")
        await page.locator("#chats").get_by_text("The bike is blue").click()
        await expect(page.locator(".assistant:not(.live)")).to_contain_text("Half of the first.")
        await expect(page).to_have_url(f"{web.page}/")
        await page.go_back()
        await expect(page.locator(".user")).to_contain_text("The car is red")
        await write(page, "And fast")
        await page.goto(f"{web.page}/c/new")
        await page.goto(f"{web.page}/?text=%2Fstatus%20now")
        await expect(page.locator("#text")).to_have_value("/status now")
        await page.reload()
        await expect(page.locator("#text")).to_have_value("")
        await expect(page.locator(".notice")).to_have_count(0)
        await watched.assert_clean()


@pytest.mark.parametrize("size", [(1440, 900), (1366, 768)], ids=["large", "laptop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_sidebar_fits(browser: Browser, web: Web, scheme: str, size: tuple[int, int]):
    await filled(web)
    for number in range(12):
        await talk(web, f"Chat number {number}, with a title that is longer than the sidebar is wide")
    await ask(web)
    async with opened(browser, web, scheme=scheme) as watched:
        page = watched.page
        await page.set_viewport_size({"width": size[0], "height": size[1]})
        await page.goto(f"{web.page}/memory")
        await expect(page.locator("#chats a")).to_have_count(17)
        await expect(page.locator("#waiting")).to_have_text("1")
        side = page.locator("nav.side")
        assert await side.evaluate("side => side.scrollHeight <= side.clientHeight")
        await expect(side.get_by_role("button", name="Account")).to_be_in_viewport()
        await accessible(page)
        await watched.show(f"sidebar-{size[0]}-{scheme}")
        await side.get_by_role("button", name="Settings").click()
        await expect(side.get_by_role("link", name="Usage")).to_be_in_viewport()
        await accessible(page)
        await watched.show(f"settings-menu-{size[0]}-{scheme}")
        await watched.assert_clean()


@looks
async def test_a_chat_is_named_pinned_searched_and_deleted(browser: Browser, web: Web, scheme: str, phone: bool):
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        page.on("dialog", lambda dialog: dialog.accept())
        menu = page.locator("#about-chat")
        await menu.locator("summary").first.click()
        await expect(menu).to_contain_text("begins with your first message")
        await menu.locator("summary").first.click()
        await write(page, "The bike is blue")
        await menu.locator("summary").first.click()
        await menu.get_by_text("Rename").click()
        await accessible(page)
        await watched.show(f"chat-menu-{look}")
        await menu.get_by_label("Title").fill("My bike")
        async with page.expect_navigation():
            await menu.get_by_role("button", name="Save").click()
        await expect(page.locator("#title")).to_have_text("My bike")
        await menu.locator("summary").first.click()
        async with page.expect_navigation():
            await menu.get_by_role("button", name="Pin").click()
        await menu.locator("summary").first.click()
        await expect(menu.get_by_role("button", name="Unpin")).to_be_visible()
        if not phone:
            await expect(page.locator("#chats .group")).to_have_text("Pinned")
        await menu.get_by_label("Search in this conversation").fill("blue")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(r"/c\?within=[0-9a-f-]+&q=blue"))
        await expect(page.get_by_role("heading", name="All chats")).to_be_visible()
        await accessible(page)
        await page.goto(f"{web.page}/")
        await menu.locator("summary").first.click()
        await menu.get_by_role("link", name="To print").click()
        await expect(page.locator(".printed h1")).to_have_text("My bike")
        await accessible(page)
        await watched.show(f"print-{look}")
        await page.go_back()
        await menu.locator("summary").first.click()
        await menu.get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No conversations yet")).to_be_visible()
        await page.goto(f"{web.page}/")
        await expect(page.locator(".user")).to_have_count(0)
        await watched.assert_clean()


@looks
async def test_the_palette_goes_anywhere_by_keyboard(browser: Browser, web: Web, scheme: str, phone: bool):
    await talk(web, "Plan a trip to Lisbon", "By train, along the Tejo?", at=TELEGRAM)
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        await page.keyboard.press("Control+k")
        await expect(page.locator("#aim")).to_be_focused()
        await accessible(page)
        await watched.show(f"palette-{'phone' if phone else 'desktop'}-{scheme}")
        await page.keyboard.type("usa")
        await expect(page.locator("#aims [aria-selected=true]")).to_contain_text("Usage")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{web.page}/usage")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("tejo")
        said = page.locator("#aims li", has_text="Plan a trip to Lisbon")
        await expect(said).to_be_visible()
        await page.keyboard.press("ArrowUp")
        await expect(said).to_have_attribute("aria-selected", "true")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Plan a trip to Lisbon")).to_be_visible()
        await page.keyboard.press("Control+k")
        await page.keyboard.type("/remem")
        await page.keyboard.press("Enter")
        await expect(page.locator("#text")).to_have_value("/remember ")
        await page.fill("#text", "")
        await page.evaluate("document.activeElement.blur()")
        await page.keyboard.press("?")
        await expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
        await accessible(page)
        await watched.show(f"keys-{'phone' if phone else 'desktop'}-{scheme}")
        await page.keyboard.press("Escape")
        await expect(page.locator("#keys")).to_be_hidden()
        await watched.assert_clean()


async def test_esc_stops_the_answer_and_leaves_questions_open(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await write(page, "hello")
        await ask_in_chat(web)
        await expect(page.locator("#thread .asking .question")).to_have_count(2)
        web.model.says("I will now count", Wait())
        await page.fill("#text", "count")
        await page.keyboard.press("Enter")
        await expect(page.locator("#live-tail")).to_have_text("I will now count")
        await page.keyboard.press("Escape")
        await expect(page.locator(".notice", has_text="Stopped.")).to_be_visible()
        await expect(page.locator("#thread .asking .question")).to_have_count(2)
        await watched.assert_clean()


@looks
async def test_the_inbox_has_every_kind_of_card(browser: Browser, web: Web, scheme: str, phone: bool):
    at = Address("telegram", "bot", "8")
    inbound = Inbound(at, Sender("8", "Bo"), "hi", "m8", datetime.now(UTC), private=True, as_owner=True)
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        await ask(web)
        await web.path.database.run(lambda tx: pairings.request(tx, inbound, "ABCDEFGH"))
        await page.goto(f"{web.page}/approvals")
        await expect(page).to_have_title("(2) Inbox · SupaClaw")
        await expect(page.locator(".asks")).to_have_count(2)
        await accessible(page)
        await watched.show(f"inbox-{'phone' if phone else 'desktop'}-{scheme}")
        await page.locator(".asks", has_text="ABCDEFGH").get_by_role("button", name="Deny").click()
        await expect(page.locator(".asks")).to_have_count(1)
        await watched.assert_clean()


@looks
async def test_a_temporary_chat_says_so_and_is_deleted(browser: Browser, web: Web, scheme: str, phone: bool):
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        await page.locator("#empty").get_by_role("link", name="Temporary chat").click()
        await expect(page.locator("#title")).to_have_text("Temporary chat")
        await write(page, "Keep this to yourself")
        await expect(page).to_have_url(re.compile(r"/c/temporary-[0-9a-f-]{36}$"))
        await page.reload()
        await expect(page.locator(".message.user")).to_have_count(1)
        await expect(page.locator("#chats")).not_to_contain_text("Keep this")
        await watched.show(f"temporary-{'phone' if phone else 'desktop'}-{scheme}")
        await accessible(page)
        await page.locator(".message.user").hover()
        await page.get_by_role("button", name="Edit").click()
        await expect(page.locator("#text")).to_have_value("Keep this to yourself")
        await page.fill("#text", "Keep that to yourself")
        await page.keyboard.press("Control+Enter")
        await expect(page.locator(".assistant:not(.live)").last).to_contain_text("re: Keep that")
        await expect(page.get_by_role("link", name="Earlier version")).to_have_count(0)
        await page.get_by_role("button", name="End and delete").click()
        await expect(page.locator(".notice")).to_contain_text("Deleted")
        await expect(page.locator(".message.user")).to_have_count(0)
        await watched.assert_clean()


async def test_an_unverified_answer_says_why(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.set_input_files("#pick", {"name": "q3.csv", "mimeType": "text/csv", "buffer": b"a,b\n1,2\n"})
        await expect(page.locator("#files small")).to_have_text("8 B")
        await page.fill("#text", "Sum them up")
        await page.keyboard.press("Enter")
        doubt = page.locator(".unverified")
        await expect(doubt).to_be_visible()
        await doubt.locator("summary").click()
        await expect(doubt).to_contain_text("q3.csv")
        await doubt.get_by_role("link", name="Vouch").click()
        await expect(page.get_by_role("button", name="Vouch")).to_be_visible()
        await watched.assert_clean()
    assert await web.path.rows("select max(label)::int from sessions") == [(int(Label.UNTRUSTED),)]


async def test_the_sidebar_says_answering_as_long_as_it_is_so(browser: Browser, web: Web):
    writing = Wait()
    web.model.says("Half of the", writing, " answer.")
    async with opened(browser, web) as watched:
        page = watched.page
        await page.add_init_script("window.setInterval = () => 0")
        await page.reload()
        await page.fill("#text", "How long?")
        await page.keyboard.press("Enter")
        await expect(page.locator("#chats .badge.live")).to_have_text("answering")
        writing.over.set()
        await expect(page.locator(".assistant:not(.live)")).to_contain_text("Half of the answer.")
        await expect(page.locator("#chats a")).to_have_count(1)
        await expect(page.locator("#chats .badge.live")).to_have_count(0)
        await watched.assert_clean()


async def test_words_stay_with_their_chat_until_they_are_taken(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.get_by_role("link", name="New chat").click()
        await page.fill("#text", "/nonsense it is")
        await page.keyboard.press("Enter")
        await expect(page.locator("#toast")).to_contain_text("unknown command")
        await expect(page.locator("#text")).to_have_value("/nonsense it is")
        await expect(page).to_have_url(f"{web.page}/c/new")
        await write(page, "The bike is blue")
        await expect(page).to_have_url(re.compile(r"/c/[0-9a-f-]{36}$"))
        await page.fill("#text", "And its saddle")
        await page.reload()
        await expect(page.locator("#text")).to_have_value("And its saddle")
        await page.locator(".message.user").hover()
        await page.get_by_role("button", name="Edit").click()
        await expect(page.locator("#text")).to_have_value("The bike is blue")
        await page.fill("#text", "The bike is green")
        await page.reload()
        await expect(page.locator("#editing")).to_be_visible()
        await expect(page.locator("#text")).to_have_value("The bike is green")
        await page.keyboard.press("Escape")
        await expect(page.locator("#text")).to_have_value("And its saddle")
        await page.goto(f"{web.page}/c/new")
        await expect(page.locator("#text")).to_have_value("")
        await watched.assert_clean()


async def test_words_are_sent_where_they_were_typed_after_signing_in_again(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.get_by_role("link", name="New chat").click()
        await write(page, "The bike is blue")
        address = page.url
        await page.fill("#text", "And its saddle")
        await web.path.rows("update api_tokens set revoked_at = now() where kind = 'cookie' returning 1")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{web.page}/login")
        await page.goto(web.backend.access.sign_in_link(web.url))
        await expect(page).to_have_url(address)
        await expect(page.locator(".message.user").last).to_contain_text("And its saddle")
        await expect(page.locator(".message.user")).to_have_count(2)


async def test_what_is_typed_stays_for_a_sign_in_in_another_tab(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.goto(f"{web.page}/schedules")
        await page.get_by_role("heading", name="New schedule").click()
        await page.get_by_label("Name").fill("water the plants")
        await page.get_by_label("What the agent should do").fill("Remind me")
        await web.path.rows("update api_tokens set revoked_at = now() where kind = 'cookie' returning 1")
        await page.get_by_role("button", name="Create").click()
        await expect(page.locator("#toast")).to_contain_text("Sign in in another tab")
        other = await page.context.new_page()
        await other.goto(web.backend.access.sign_in_link(web.url))
        await expect(other).to_have_url(f"{web.page}/")
        await expect(page).to_have_url(f"{web.page}/schedules")
        await expect(page.get_by_label("Name")).to_have_value("water the plants")
        await page.get_by_role("button", name="Create").click()
        await expect(page.locator("#board")).to_contain_text("water the plants")


async def test_a_gateway_that_starts_signs_nobody_out(browser: Browser, web: Web):
    asked = 0

    async def starts(route: Route) -> None:
        nonlocal asked
        asked += 1
        await route.fulfill(status=503, json={"error": {"message": "The gateway waits for its database"}})

    async with opened(browser, web) as watched:
        page = watched.page
        await page.route("**/login/state", starts)
        await page.route("**/schedules/events*", lambda route: route.abort())
        await page.goto(f"{web.page}/schedules")
        await page.get_by_role("heading", name="New schedule").click()
        await page.get_by_label("Name").fill("water the plants")
        await eventually(lambda: asked > 1)
        await page.unroute_all()
        await expect(page.locator("#connection")).to_have_text("Live")
        await expect(page.get_by_label("Name")).to_have_value("water the plants")


async def test_a_request_for_access_is_answered_in_the_chat(browser: Browser, web: Web):
    at = Address("telegram", "bot", "8")
    inbound = Inbound(at, Sender("8", "Bo"), "hi", "m8", datetime.now(UTC), private=True, as_owner=True)
    async with opened(browser, web) as watched:
        page = watched.page
        await write(page, "hello")
        await web.path.database.run(lambda tx: pairings.request(tx, inbound, "ABCDEFGH"))
        await web.path.notices.tell_owner("`Bo` requests access. /pairing approve ABCDEFGH allows it.")
        card = page.locator("#thread .asks")
        await expect(card).to_contain_text("Telegram · 8 · requests access by the code ABCDEFGH")
        await accessible(page)
        await card.get_by_role("button", name="Deny").click()
        await expect(page.locator("#thread")).to_contain_text("Question ABCDEFGH")
        await expect(card).to_have_count(0)
        assert await web.path.rows("select state from pairings") == [("denied",)]
        await watched.assert_clean()


async def test_two_tabs_without_a_connection_lose_nothing(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        one, two = watched.page, await watched.page.context.new_page()
        await two.goto(f"{web.page}/")
        for page, text in ((one, "from the first"), (two, "from the second"), (one, "and again")):
            await page.route(f"{web.page}/chat", lambda route: route.abort())
            await page.fill("#text", text)
            await page.keyboard.press("Enter")
            await expect(page.locator("#unsent")).to_contain_text(text)
        await two.close()
        await one.unroute(f"{web.page}/chat")
        await one.reload()
        await expect(one.locator(".message.user")).to_have_count(3)
        await expect(one.locator("#thread")).to_contain_text("from the second")
        await expect(one.locator("#unsent .message")).to_have_count(0)


async def test_back_and_reload_find_the_place(browser: Browser, web: Web):
    web.model.says("line\n\n" * 90)
    async with opened(browser, web) as watched:
        page = watched.page
        await write(page, "write much", "line")
        await page.hover("#chat")
        await page.mouse.wheel(0, -900)
        await page.mouse.wheel(0, 250)
        await expect(page.locator("#newer")).to_be_hidden()
        place = await page.locator("#chat").evaluate("chat => chat.scrollTop")
        assert place > 300
        await page.goto(f"{web.page}/memory")
        await page.go_back()
        await expect(page.locator("#chat")).to_have_js_property("scrollTop", place)
        await page.reload()
        await expect(page.locator(".assistant")).to_have_count(1)
        await expect(page.locator("#chat")).to_have_js_property("scrollTop", place)
        await watched.assert_clean()


async def test_the_menu_of_a_chat_closes_by_a_click_elsewhere_and_by_esc(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page, menu = watched.page, watched.page.locator("#about-chat")
        await menu.locator("summary").first.click()
        await expect(menu).to_have_attribute("open", "")
        await page.keyboard.press("Escape")
        await expect(menu).not_to_have_attribute("open", "")
        await expect(menu.locator("summary").first).to_be_focused()
        await menu.locator("summary").first.click()
        await page.click("#chat", position={"x": 40, "y": 400})
        await expect(menu).not_to_have_attribute("open", "")
        await watched.assert_clean()
