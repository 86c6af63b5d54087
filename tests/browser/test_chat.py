import pytest
from playwright.async_api import Browser, expect

from gateway.domain.conversation.model import Attempt, ModelsExhausted, ToolCall, Waiting
from gateway.llm.client import Description
from tests.browser.conftest import opened
from tests.browser.looks import looks
from tests.browser.test_memory import accessible
from tests.web.conftest import Running, Web
from tests.web.scripted import Wait

REPORT = """Here is what I found about the **Q3 report**. The file has 3 sheets.

## Summary

- Revenue grew **18 %** to €1.24 M
- Churn fell from 4.1 % to *3.2 %*
- `EMEA` is the fastest region

| Region | Q2 | Q3 | Δ |
|---|---:|---:|---:|
| EMEA | 410 k | 512 k | +25 % |
| AMER | 480 k | 530 k | +10 % |

```python
import pandas as pd

df = pd.read_excel("q3.xlsx", sheet_name=None)
print(f"{sum(s['revenue'].sum() for s in df.values()):,.0f} is the total of all sheets, rounded to whole euros")
```

> Note: the APAC sheet has two duplicated rows. I left them out.

1. Next I can draft the board summary.
2. Or schedule a weekly check, see https://example.com/reports.

<script>window.broken = 1</script> ![pixel](https://tracker.example/p.png)

- [x] read the file
- [ ] send the summary

The growth is $g = \\frac{Q_3 - Q_2}{Q_2}$:

$$
\\begin{aligned} g_{EMEA} &= \\frac{512 - 410}{410} \\\\ &\\approx 25\\,\\% \\end{aligned}
$$

```chart
{"type": "bar", "title": "Revenue", "labels": ["EMEA", "AMER"], "series": {"Q2": [410, 480], "Q3": [512, 530]}}
```

```csv
Region,Seats
EMEA,"1,200"
AMER,90
```

<details><summary>How it was counted</summary>

By seats[^1].

</details>

[^1]: At the end of the quarter.

| Donaudampfschifffahrtsgesellschaft | Verantwortliche Ansprechpartnerin | Kostenstelle | Anmerkung |
|---|---|---|---|
| Nordrhein-Westfalen | Hildegard Müller-Lüdenscheidt | 4711-0815 | https://example.com/a/very/long/path |
"""


@looks
async def test_an_answer_with_everything_in_it(browser: Browser, web: Web, scheme: str, phone: bool):
    middle = Wait()
    half = len(REPORT) // 2
    web.model.says(
        "Let me look.", ToolCall("c1", "list_files", '{"path": "."}'), ToolCall("c2", "read_file", '{"path": "q3.md"}')
    )
    web.model.says(REPORT[:half], middle, REPORT[half:])
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        await watched.show(f"empty-{look}")
        await page.fill("#text", "What does the Q3 report say?\nKeep it short.")
        await page.keyboard.press("Enter")
        await middle.reached.wait()
        await expect(page.locator("#live-done h2")).to_have_text("Summary")
        await expect(page.locator("#stop")).to_be_visible()
        await watched.show(f"writing-{look}")
        middle.over.set()
        await expect(page.locator("#live")).to_have_count(0)
        await expect(page.locator(".assistant:last-child blockquote")).to_be_attached()
        await expect(page.locator("#stop")).to_be_hidden()
        await watched.show(f"answer-{look}")
        await page.locator(".tool summary").first.click()
        await page.evaluate("document.getElementById('chat').scrollTop = 0")
        await watched.show(f"tools-{look}")
        assert await page.evaluate("window.broken") is None
        await expect(page.locator(".tool .words").first).to_have_text("Listed files: .")
        await expect(page.locator(".code .k").first).to_have_text("import")
        await page.locator(".table").last.scroll_into_view_if_needed()
        await watched.show(f"rich-{look}")
        cell = page.locator("th >> text=Donaudampfschifffahrtsgesellschaft")
        lines = (
            "cell => { const r = document.createRange(); r.selectNodeContents(cell); return r.getClientRects().length }"
        )
        assert await cell.evaluate(lines) == 1
        assert await page.locator("math").count() == 2
        await expect(page.get_by_role("img", name="Bar chart: Revenue").locator("rect")).to_have_count(4)
        colour = await page.locator(".plot rect.s1").first.evaluate("bar => getComputedStyle(bar).fill")
        await expect(page.locator(".legend .s1")).to_have_css("background-color", colour)
        seats = page.get_by_role("button", name="Seats")
        await seats.click()
        await expect(page.locator(".md > .table .sorts tbody tr").first).to_have_text("AMER90")
        await seats.click()
        await expect(page.locator(".md > .table .sorts tbody tr").first).to_have_text("EMEA1,200")
        await page.get_by_text("How it was counted").click()
        await expect(page.get_by_text("By seats")).to_be_visible()
        await accessible(page)
        assert await page.locator(".thread img:not(.empty img)").count() == 0
        await watched.assert_clean()


async def test_it_can_be_used_by_keyboard_alone(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.evaluate("document.activeElement.blur()")
        await page.keyboard.press("/")
        await expect(page.locator("#text")).to_be_focused()
        await page.keyboard.type("/st")
        await expect(page.locator("#commands li:visible")).to_have_count(3)
        await watched.show("commands")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.locator("#text")).to_have_value("/stop ")
        await page.keyboard.press("Enter")
        await expect(page.locator(".notice")).to_contain_text("Nothing is running.")
        await expect(page.locator(".notice .command")).to_have_text("/stop")
        await page.keyboard.type("one")
        await page.keyboard.press("Shift+Enter")
        await page.keyboard.type("two")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message.user")).to_contain_text("You: one\ntwo")
        await expect(page.locator(".message.assistant:not(.live) .md")).to_have_text("re: one two")
        await page.keyboard.type("/nonsense")
        await page.keyboard.press("Enter")
        await expect(page.locator("#toast")).to_contain_text("unknown command")
        await watched.assert_clean()


async def test_stop_ends_the_answer_and_new_chat_empties_the_page(browser: Browser, web: Web):
    web.model.says("I will now count", Wait())
    async with opened(browser, web) as watched:
        page = watched.page
        await page.fill("#text", "count to a million")
        await page.keyboard.press("Enter")
        await expect(page.locator("#live-tail")).to_have_text("I will now count")
        await page.click("#stop")
        await expect(page.locator(".notice")).to_contain_text("Stopped.")
        await expect(page.locator(".message.assistant:not(.live) .md")).to_have_text("I will now count")
        await expect(page.locator("#live")).to_have_count(0)
        await expect(page.locator(".message.user small")).to_have_text("stopped")
        await page.click("text=New chat")
        await expect(page.locator(".message.user")).to_have_count(0)
        await page.go_back()
        await expect(page.locator(".message.user")).to_have_count(1)
        await watched.assert_clean()


async def test_esc_stops_the_answer(browser: Browser, web: Web):
    web.model.says("I will now count", Wait())
    async with opened(browser, web) as watched:
        page = watched.page
        await page.fill("#text", "count to a million")
        await page.keyboard.press("Enter")
        await expect(page.locator("#live-tail")).to_have_text("I will now count")
        await page.keyboard.type("/st")
        await page.keyboard.press("Escape")
        await expect(page.locator("#commands")).to_be_hidden()
        await expect(page.locator("#live")).to_have_count(1)
        await page.fill("#text", "")
        await page.keyboard.press("Escape")
        await expect(page.locator(".notice")).to_contain_text("Stopped.")
        await watched.assert_clean()


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
async def test_an_error_is_shown_and_tried_again(browser: Browser, web: Web, phone: bool):
    words = "**No model could answer.**\n1. `openai/gpt-5`: rate_limit: slow down"
    web.model.says(ModelsExhausted(words, (Attempt("openai/gpt-5", "rate_limit", "slow down"),)))
    waiting = Wait()
    web.model.says(Waiting(Attempt("openai/gpt-5", "rate_limit", "slow down"), 20), waiting, "Here I am.")
    async with opened(browser, web, phone=phone) as watched:
        page = watched.page
        await page.fill("#text", "hello")
        await page.click("#send")
        await expect(page.locator(".failure strong")).to_have_text("No model could answer.")
        await watched.show(f"failure-{'phone' if phone else 'desktop'}")
        await accessible(page)
        await page.click("text=Try again")
        await expect(page.locator("#live-awaited")).to_contain_text("gpt-5 is busy, next try in")
        await watched.show(f"awaited-{'phone' if phone else 'desktop'}")
        waiting.over.set()
        await expect(page.locator(".assistant:not(.live) .md")).to_have_text("Here I am.")
        await expect(page.locator(".message.user")).to_have_count(2)
        await watched.assert_clean()


async def test_a_message_tells_its_time_and_costs_and_can_be_copied(browser: Browser, web: Web):
    web.model.says("The **answer**.")
    async with opened(browser, web) as watched:
        page = watched.page
        await page.fill("#text", "how?")
        await page.click("#send")
        answer = page.locator(".assistant:not(.live)")
        await expect(answer.locator(".quiet span")).to_have_text("scripted · 18 tokens · $0.0020")
        await expect(answer.locator("time")).to_have_css("opacity", "0")
        await answer.hover()
        await expect(answer.locator("time")).to_have_css("opacity", "1")
        await answer.locator("text=Copy").click()
        await expect(page.locator("#toast")).to_have_text("Copied.")
        assert await page.evaluate("navigator.clipboard.readText()") == "The **answer**."
        await watched.assert_clean()


async def test_a_voice_note_is_recorded_and_sent(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.get_by_role("button", name="Record a voice note").click()
        await expect(page.locator("#speak")).to_have_attribute("aria-pressed", "true")
        await page.keyboard.press("Escape")
        await expect(page.locator("#toast")).to_have_text("The recording was discarded.")
        await page.get_by_role("button", name="Record a voice note").click()
        await expect(page.locator("#speak")).to_have_attribute("aria-pressed", "true")
        await accessible(page)
        await page.wait_for_timeout(300)
        await page.get_by_role("button", name="Stop and send the voice note").click()
        await expect(page.locator(".message.user .file")).to_have_count(1)
        await expect(page.locator(".message.user .file .name")).to_have_text("voice-note.weba")
        await expect(page.locator(".message.user audio")).to_have_count(1)
        await expect(page.locator(".assistant:not(.live)")).to_have_count(1)
        await watched.assert_clean()


async def test_enter_makes_a_line_on_a_phone_until_it_is_switched(browser: Browser, web: Web):
    async with opened(browser, web, phone=True) as watched:
        page = watched.page
        await page.evaluate("localStorage.setItem('supaclaw.enter', 'line')")
        await page.reload()
        await page.fill("#text", "one")
        await page.keyboard.press("Enter")
        await page.keyboard.type("two")
        await expect(page.locator("#text")).to_have_value("one\ntwo")
        await page.click("text=More")
        await watched.show("more-phone")
        await page.click("text=Account")
        await page.click("text=Enter makes a new line")
        await page.keyboard.press("Escape")
        await page.focus("#text")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message.user")).to_contain_text("one\ntwo")
        await watched.assert_clean()


async def test_code_can_be_copied(browser: Browser, web: Web):
    web.model.says("```sh\necho one\n```")
    async with opened(browser, web) as watched:
        page = watched.page
        await page.fill("#text", "how?")
        await page.click("#send")
        await page.click(".message:not(.live) .code button")
        await expect(page.locator("#toast")).to_have_text("Copied.")
        assert await page.evaluate("navigator.clipboard.readText()") == "echo one\n"


async def test_what_is_pressed_stays_until_it_is_let_go(browser: Browser, web: Web):
    middle = Wait()
    web.model.says("```sh\necho one\n```\n\nThat is", middle, " all.")
    async with opened(browser, web) as one, opened(browser, web) as two:
        page = one.page
        await page.fill("#text", "how?")
        await page.click("#send")
        await page.hover("#live .code button")
        await page.mouse.down()
        middle.over.set()
        await expect(two.page.locator(".assistant:not(.live)")).to_contain_text("That is all.")
        await page.mouse.up()
        await expect(page.locator("#toast")).to_have_text("Copied.")
        await expect(page.locator(".assistant:not(.live)")).to_contain_text("That is all.")
        await expect(page.locator("#live")).to_have_count(0)
        await one.assert_clean()


async def test_the_reader_is_not_pulled_down(browser: Browser, web: Web):
    last = Wait()
    web.model.says("line\n\n" * 60, last, "the end")
    async with opened(browser, web) as watched:
        page = watched.page
        await page.fill("#text", "write much")
        await page.click("#send")
        await last.reached.wait()
        await expect(page.locator("#live-done p")).to_have_count(59)
        await expect(page.locator("#live-tail")).to_have_text("line")
        await page.hover("#chat")
        await page.mouse.wheel(0, -100_000)
        await expect(page.locator("#chat")).to_have_js_property("scrollTop", 0)
        last.over.set()
        await expect(page.locator("#newer button")).to_be_visible()
        assert await page.evaluate("document.getElementById('chat').scrollTop") == 0
        await page.click("#newer button")
        await expect(page.locator("text=the end")).to_be_in_viewport()


async def test_two_pages_and_a_reload_show_the_same(browser: Browser, web: Web):
    middle = Wait()
    web.model.says("First paragraph.\n\nSecond", middle, " paragraph.")
    async with opened(browser, web) as one, opened(browser, web, phone=True) as two:
        await one.page.fill("#text", "go")
        await one.page.click("#send")
        await expect(two.page.locator("#live-tail")).to_have_text("Second")
        await one.page.fill("#text", "a draft")
        await one.page.reload()
        await expect(one.page.locator("#text")).to_have_value("a draft")
        await expect(one.page.locator("#live-done")).to_have_text("First paragraph.")
        await expect(one.page.locator("#live-tail")).to_have_text("Second")
        middle.over.set()
        for watched in (one, two):
            await expect(watched.page.locator(".assistant p").last).to_have_text("Second paragraph.")
            await expect(watched.page.locator("#live")).to_have_count(0)


async def test_nothing_is_lost_when_the_gateway_restarts_in_the_middle(browser: Browser, running: Running):
    first = await running.start()
    writing = Wait()
    first.web.model.says("Half of the", writing)
    async with opened(browser, first.web) as watched:
        page = watched.page
        await page.fill("#text", "tell me")
        await page.keyboard.press("Enter")
        await expect(page.locator("#live-tail")).to_have_text("Half of the")
        await page.fill("#text", "my draft")
        await first.stop()
        await expect(page.locator("#connection")).to_have_text("Reconnecting…")
        await watched.show("reconnecting")
        await page.keyboard.press("Enter")
        await expect(page.locator("#unsent .message")).to_have_text("my draft")
        await page.fill("#text", "another draft")
        second = await running.start(port=first.web.port, instance=first.web.path.instance)
        await expect(page.locator("#connection")).to_have_text("Live")
        await expect(page.locator(".message.user")).to_have_count(2)
        await expect(page.locator("#unsent .message")).to_have_count(0)
        await expect(page.locator(".message.assistant").last).to_contain_text("re: ")
        await expect(page.locator("#live")).to_have_count(0)
        await expect(page.locator("#text")).to_have_value("another draft")
        await second.stop()


async def test_signing_out_ends_the_session(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        page = watched.page
        await page.click("text=Account")
        await page.click("text=Theme")
        await expect(page.locator("html")).to_have_attribute("data-theme", "light")
        await page.click("text=Theme")
        await page.reload()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        answers = iter([False, True])
        page.on("dialog", lambda dialog: dialog.accept() if next(answers) else dialog.dismiss())
        await page.click("text=Account")
        await page.click("text=Sign out")
        await expect(page.locator("#connection")).to_have_text("Live")
        await page.click("text=Sign out")
        await page.wait_for_url(f"{web.page}/login")
        await watched.show("login")
        await page.goto(web.page)
        await page.wait_for_url(f"{web.page}/login")
        await watched.assert_clean()


async def test_a_used_link_says_so(browser: Browser, web: Web):
    link = web.backend.access.sign_in_link(web.url)
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(link)
    await page.wait_for_url(f"{web.page}/")
    other = await (await browser.new_context()).new_page()
    await other.goto(link)
    await expect(other.locator("[role=alert]")).to_be_visible()


async def test_the_page_is_small(browser: Browser, web: Web):
    async with opened(browser, web) as watched:
        client = await watched.page.context.new_cdp_session(watched.page)
        sizes: list[float] = []
        await client.send("Network.enable")
        await client.send("Network.setCacheDisabled", {"cacheDisabled": True})
        client.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
        await watched.page.reload(wait_until="load")
        await expect(watched.page.locator("#connection")).to_have_text("Live")
        assert 0 < sum(sizes) <= 120 * 1024, sizes


@looks
async def test_a_message_is_edited_and_an_answer_retried(browser: Browser, web: Web, scheme: str, phone: bool):
    name = web.model.describe().chain[0]
    object.__setattr__(web.backend.settings, "model", lambda: Description(name, "a test", (name, "acme/other"), ()))
    for words in ("About Rome.", "About Florence.", "More about Florence."):
        web.model.says(words)
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        if not phone:
            await page.set_viewport_size({"width": 1440, "height": 900})
        await page.fill("#text", "Tell me about Rome")
        await page.click("#send")
        answer, mine = page.locator(".assistant:not(.live) .md"), page.locator(".message.user")
        await expect(answer).to_have_text("About Rome.")
        await page.fill("#text", "a draft")
        await mine.hover()
        await mine.get_by_role("button", name="Edit").click()
        await expect(page.locator("#text")).to_have_value("Tell me about Rome")
        await page.keyboard.press("Escape")
        await expect(page.locator("#text")).to_have_value("a draft")
        await expect(page.locator("#editing")).to_be_hidden()
        await mine.hover()
        await mine.get_by_role("button", name="Edit").click()
        await expect(page.locator("#editing")).to_be_visible()
        await page.fill("#text", "Tell me about Florence")
        await accessible(page)
        await watched.show(f"edit-{look}")
        await page.click("#send")
        await expect(answer).to_have_text("About Florence.")
        await expect(mine).to_contain_text("Tell me about Florence")
        await expect(page.locator("#text")).to_have_value("a draft")
        await page.locator(".assistant:not(.live)").hover()
        await page.get_by_role("button", name="Retry").click()
        await expect(page.locator("#retry")).to_be_visible()
        await accessible(page)
        await watched.show(f"retry-{look}")
        await page.locator("#retry button").first.click()
        await expect(answer).to_have_text("More about Florence.")
        await expect(mine).to_have_count(1)
        await expect(page.get_by_role("link", name="Earlier version")).to_be_visible()
        await accessible(page)
        await watched.show(f"branch-{look}")
        await page.get_by_role("link", name="Earlier version").click()
        await expect(page.locator(".thread .user")).to_contain_text("Tell me about Rome")
        await expect(page.locator(".thread").get_by_role("button", name="Edit")).to_have_count(0)
        await page.goto(f"{web.page}/c")
        await expect(page.locator(".badge", has_text="branch")).to_have_count(2)
        await accessible(page)
        await watched.show(f"versions-{look}")
        await watched.assert_clean()


async def test_nothing_branches_off_while_an_answer_is_written(browser: Browser, web: Web):
    waiting = Wait()
    web.model.says("One.")
    web.model.says("Two", waiting, ".")
    async with opened(browser, web) as watched:
        page = watched.page
        await page.fill("#text", "one")
        await page.click("#send")
        await expect(page.locator(".assistant:not(.live) .md")).to_have_text("One.")
        await page.fill("#text", "two")
        await page.keyboard.press("Enter")
        await expect(page.locator("#live-tail")).to_have_text("Two")
        await page.locator(".message.user").first.hover()
        await page.locator(".message.user").first.get_by_role("button", name="Edit").click()
        await expect(page.locator("#toast")).to_have_text("Wait for the answer, or stop it first.")
        await expect(page.locator("#editing")).to_be_hidden()
        waiting.over.set()
        await expect(page.locator(".assistant:not(.live) .md").last).to_have_text("Two.")
        await watched.assert_clean()


@looks
async def test_a_todo_list_stands_above_the_answer_and_ticks_off(browser: Browser, web: Web, scheme: str, phone: bool):
    begun, checked = Wait(), Wait()
    steps = (
        '["Read the three sheets", "Compare the regions, the quarters and the duplicated rows", "Write the summary"]'
    )
    web.model.says("", ToolCall("c1", "todo", f'{{"title": "Q3", "steps": {steps}}}'))
    web.model.says("I have begun.", begun, ToolCall("c2", "todo", '{"done": [1, 2]}'))
    web.model.says("Almost there.", checked, " Here it is.")
    look = f"{'phone' if phone else 'desktop'}-{scheme}"
    async with opened(browser, web, scheme=scheme, phone=phone) as watched:
        page = watched.page
        await page.fill("#text", "Compare the quarters.")
        await page.keyboard.press("Enter")
        await begun.reached.wait()
        await expect(page.locator("#todo li")).to_have_count(3)
        await expect(page.locator("#todo [data-done]")).to_have_count(0)
        begun.over.set()
        await checked.reached.wait()
        await expect(page.locator("#todo [data-done]")).to_have_count(2)
        await watched.show(f"plan-{look}")
        await accessible(page)
        plan, answer = [await page.locator(each).bounding_box() for each in ("#todo", "#live")]
        assert plan
        assert answer
        assert plan["y"] < answer["y"]
        checked.over.set()
        await expect(page.locator("#live")).to_have_count(0)
        await expect(page.locator("#todo")).to_have_count(0)
        await watched.assert_clean()
