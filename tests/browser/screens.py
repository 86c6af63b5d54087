"""Pictures of every screen for docs/screens: `python -m tests.browser.screens [NAME …]`, on made-up content.

Needs Chromium; takes a minute. The gateway is the one of the tests: the real page, database and flow, a scripted model.
"""

import asyncio
import io
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.async_api import Browser, Page, StorageState, async_playwright, expect

from gateway.agent.limits import Limits
from gateway.agent.mcp import pinned_tools
from gateway.agent.mcp.pinned_tools import Use
from gateway.agent.work.schedules import ScheduleRequest, Schedules
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.config.model import Config
from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.model import ModelEvent, Prompt, Reply, ToolCall, Usage
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.health import Finding, FindingLevel, JobRun, JobState
from gateway.domain.ids import SessionId
from gateway.domain.memory.memories import Category
from gateway.domain.principals import Label
from gateway.flow.setup import Setup
from gateway.llm.client import Description
from gateway.logs import SecretMask
from gateway.net.mcp.server import ToolDefinition
from gateway.secrets.facts import Binding
from gateway.store.connection.pool import Database
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.migrate import migrate
from gateway.store.people import tokens
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewQuestion
from gateway.timetable.schedules import ScheduleChanges
from tests.browser.conftest import CHROMIUM, PHONE
from tests.config.editing.conftest import desk_in
from tests.web.conftest import Running, Web
from tests.web.scripted import ScriptedModel
from tests.web.test_conversations import talk
from tests.web.test_logs_page import write
from tests.web.test_memory_page import keep
from tests.web.test_people import ask
from tests.web.test_tasks import start
from tests.web.test_tasks_page import children, finished, until
from tests.web.test_usage import used
from tests.workspace.skills.writing import put, skill_md
from tests.workspace.tool_files.writing import put as put_tool
from tests.workspace.tool_files.writing import tool_md

FOLDER = Path(__file__).parents[2] / "docs" / "screens"
DESKTOP = {"width": 1440, "height": 900}
LOOKS = {
    "desktop": (DESKTOP, "light", 1),
    "desktop-dark": (DESKTOP, "dark", 1),
    "phone": (PHONE, "light", 2),
    "phone-dark": (PHONE, "dark", 2),
}
SMALL = ("desktop", "phone")
COLOURS = 160
MODEL = "anthropic/claude-sonnet-4-5"
BIKE = "What do I need to check before I ride my bike to work again?"
CHECKLIST = """Your bike has been in the cellar since November, so **check these first**; half an hour is enough.

1. **Tyres**: pump them to 4.5 bar and look for cracks.
2. **Brakes**: both levers should stop the wheel at half pull.
3. **Chain**: wipe it, then one drop of oil a link.
4. **Lights**: you noted in autumn that the rear one flickers.

| Part | You have it | Where |
|---|---|---|
| Chain oil | yes | shelf in the cellar |
| Inner tube, 28″ | one left | saddlebag |
| Rear light | **no** | about €20 |

I saved the list as `bike.md` and I'll remind you on Saturday at 10:00."""
WEEK = """You have three fixed dates this week:

- **Tue 18:30** choir, Lukas church
- **Thu 09:00** dentist
- **Sat 10:00** bike check, my reminder

Wednesday evening is free. You wanted to call your sister."""
CHANGE = """--- HEARTBEAT.md
+++ HEARTBEAT.md
@@ -1,3 +1,4 @@
 # Heartbeat
 
 - On weekdays at 8: today's dates and the weather
+- Tell me when a parcel is out for delivery"""
CONFIG = """{
  "owner": {"name": "Ada", "telegram": 123456789},
  "models": {"primary": "anthropic/claude-sonnet-4-5"},
  "channels": {"telegram": {"token": "$env:BOT"}, "whatsapp": {}}
}
"""
NOTES = "Turns the minutes of a meeting into decisions, open questions and tasks."
FORMS = "Fills in PDF forms and reads tables out of them. Use when a PDF is mentioned."
STEPS = """1. List the fields of the form; fields.md says what each kind takes.
2. Ask for values that you don't know. Never guess a name, date or amount.
3. Save the filled form beside the original and show what you entered."""
OFFERS = "Compare the three offers for the heat pump"
PARTS = [
    ("researcher", "Read the first offer", "completed", None, 290, 170),
    ("researcher", "Read the second offer", "completed", None, 290, 120),
    ("researcher", "Read the third offer", "failed", "The PDF is encrypted.", 289, 262),
    ("writer", "Write the comparison", "completed", None, 110, 25),
]
PEDALS = """Around 1864 in Paris: Pierre Lallement's patent is of 1866, Michaux sold them from 1867.
Sources: US patent 59,915; Le Miroir de la bicyclette, 1869."""
RESEARCHER = """---
name: Researcher
description: finds and compares sources
tools: [web_search, web_fetch, read_file]
budget: 0.2
---
You look for primary sources. Name each one.
"""
FINDINGS = [
    ("python", Finding(FindingLevel.OK, "Python 3.13.5")),
    ("folders", Finding(FindingLevel.WARN, "other users can read ~/supaclaw/data", "chmod 700 ~/supaclaw/data")),
    ("disk", Finding(FindingLevel.OK, "81.4 GB free")),
    ("config", Finding(FindingLevel.OK, "config.json is valid")),
    ("database", Finding(FindingLevel.OK, "PostgreSQL 18.0 with pgvector 0.8.1, 48 MB")),
    ("model", Finding(FindingLevel.OK, MODEL)),
    ("channels", Finding(FindingLevel.OK, "telegram and whatsapp are connected")),
]


@dataclass(frozen=True)
class Shot:
    """One picture: the screen at `path`, after `prepare`."""

    name: str
    path: str
    looks: Sequence[str] = SMALL
    prepare: Callable[[Page], Any] | None = None


async def open_first(page: Page) -> None:
    await page.locator("#rows article details summary, #board article details summary").first.click()
    await expect(page.locator("article details[open] .edit").first).to_be_visible()


async def top(page: Page) -> None:
    await expect(page.locator(".assistant time").last).not_to_be_empty()
    await page.evaluate("document.getElementById('chat').scrollTop = 1e6")


async def change_budget(page: Page) -> None:
    await page.get_by_label("A day, in US dollars").fill("3")
    await page.get_by_role("button", name="Review changes").click()
    await expect(page.locator(".diff .added").first).to_be_visible()
    await page.locator("#review").scroll_into_view_if_needed()


async def new_token(page: Page) -> None:
    await page.get_by_text("New token").first.click()


async def servers(page: Page) -> None:
    await page.get_by_label("Review screenshot").click()
    await expect(page.get_by_role("button", name="Confirm and switch on")).to_be_visible()
    await page.evaluate("document.getElementById('servers-heading').scrollIntoView()")


async def decide(page: Page) -> None:
    await page.locator("#skills-pdf-forms summary").click()
    await expect(page.get_by_role("button", name="Confirm and switch on")).to_be_visible()


async def compare(page: Page) -> None:
    await page.get_by_text("Compare or restore").first.click()
    await page.locator(".since summary").first.click()
    await expect(page.locator(".diff").first).to_be_visible()


async def try_agent(page: Page) -> None:
    await page.locator("#agent-researcher summary").first.click()
    await page.get_by_label("A task to test it with").fill("When was the first bicycle with pedals built?")
    await page.locator("#agent-researcher").get_by_role("button", name="Test").click()
    await expect(page.get_by_label("What came of the test")).to_be_visible()


async def show_timeline(page: Page) -> None:
    await page.get_by_role("link", name=OFFERS).click()
    await page.get_by_text("Timeline").click()
    await page.get_by_text("Trace").first.click()
    await expect(page.locator(".trace li").first).to_be_visible()


async def new_schedule(page: Page) -> None:
    await page.get_by_text("New schedule").first.click()
    await page.get_by_label("Name").fill("choir")
    await page.get_by_label("What the agent should do").fill("Remind me to take the scores along.")
    await page.get_by_role("combobox", name="Repeat").select_option("Every week")
    await page.locator("[name=weekday]").first.select_option("Tuesday")
    await page.get_by_label("Time", exact=True).first.fill("17:30")
    await expect(page.locator(".preview li")).to_have_count(5)


async def more(page: Page) -> None:
    await page.get_by_role("button", name="More").click()


SHOTS = [
    Shot("chat", "/", tuple(LOOKS), top),
    Shot("menu", "/", ("phone",), more),
    Shot("palette", "/", ("desktop",), lambda page: page.keyboard.press("Control+k")),
    Shot("conversations", "/c", tuple(LOOKS)),
    Shot("search", "/c?q=tejo"),
    Shot("conversation", "/c?q=tejo", ("desktop",), lambda page: page.locator("a.title").first.click()),
    Shot("memory", "/memory", tuple(LOOKS), open_first),
    Shot("inbox", "/inbox"),
    Shot("people", "/people"),
    Shot("channels", "/channels"),
    Shot("settings", "/settings", tuple(LOOKS)),
    Shot("settings-review", "/settings", ("desktop",), change_budget),
    Shot("usage", "/usage", tuple(LOOKS)),
    Shot("logs", "/logs", SMALL, lambda page: expect(page.locator(".line").first).to_be_visible()),
    Shot("health", "/checks"),
    Shot("tokens", "/tokens", ("desktop",)),
    Shot("tokens-new", "/tokens", ("phone",), new_token),
    Shot("skills", "/tools", SMALL, decide),
    Shot("tools", "/tools", SMALL, servers),
    Shot("secrets", "/secrets"),
    Shot("tasks", "/tasks", tuple(LOOKS)),
    Shot("task", "/tasks", tuple(LOOKS), show_timeline),
    Shot("agents", "/agents", tuple(LOOKS), try_agent),
    Shot("schedules", "/schedules", tuple(LOOKS), open_first),
    Shot("schedules-new", "/schedules", SMALL, new_schedule),
    Shot("files", "/files?path=notes/bike.md", tuple(LOOKS)),
    Shot("checkpoints", "/files/checkpoints", ("desktop",), compare),
]


async def tasks(web: Web) -> None:
    """A tree that is over, with parts side by side, and one that asks."""
    id = await finished(web, "The second offer is the best: 12 % less, and the tank is included.", input=OFFERS)
    await children(web, id, len(PARTS))
    sql = """update tasks set agent = $2, input = input || jsonb_build_object('name', $3::text),
               status = $4, error = $5,
               created_at = now() - $6::int * interval '1 s', updated_at = now() - $7::int * interval '1 s'
             where master_id = $1::text::uuid and input ->> 'name' = $8 returning 1"""
    await web.path.rows(sql, id, "main", OFFERS, "completed", None, 310, 10, OFFERS)
    for number, part in enumerate(PARTS, 1):
        await web.path.rows(sql, id, *part, f"child {number}")
    question = "The second installer wants a deposit of €900 before the visit. Shall I agree?"
    web.model.says(ToolCall("", "request_human_review", json.dumps({"question": question})))
    asks = (await start(web, input="Arrange a visit by the installer")).json()["id"]
    async with web.sign_in() as page:
        await until(page, f"/tasks/{asks}", "asks you")


async def agents(web: Web) -> None:
    """One that is right, one whose file is wrong."""
    folder = web.path.workspace / ".agents" / "agents"
    folder.mkdir(parents=True)
    (folder / "researcher.md").write_text(RESEARCHER, encoding="utf-8")
    (folder / "writer.md").write_text("---\nname: Writer\n---\nShort sentences.\n", encoding="utf-8")


async def schedules(web: Web) -> None:
    """A few, with what became of one's runs."""
    owner, now = web.backend.owner.id, datetime.now(UTC)
    said: list[ScheduleChanges] = [
        {"name": "morning", "prompt": "Tell me my dates and the weather.", "cron_expr": "0 8 * * 1-5"},
        {"name": "bike check", "prompt": "Remind me to check the bike.", "run_at": "in 2 days"},
        {"name": "bills", "prompt": "Sum up what I spent last month.", "cron_expr": "0 9 1 * *"},
    ]
    async with web.path.database.transaction() as tx:
        made = Schedules(tx, owner, now, "Europe/Berlin", most=None)
        rows = [await made.add(ScheduleRequest("telegram", Label.OWNER), each) for each in said]
        await made.pause("bills")
    for days in range(1, 5):
        await web.path.rows(
            """insert into schedule_runs
                 (schedule_id, slot, principal_id, executed_at, produced_at, delivered_at, error)
               select $1, d, $2, d, d, case when $3 then null else d + interval '9 s' end, case when $3 then $4 end
               from (select date_trunc('day', now()) + interval '7 h' - $5::int * interval '1 day' as d) slot
               returning 1""",
            rows[0].id,
            owner,
            days == 3,
            "no model answered: anthropic is overloaded",
            days,
        )


async def fill(web: Web, folder: Path) -> None:
    """Some weeks of an ordinary life."""
    spoken = await conversations(web)
    await memory(web)
    await people(web)
    await skills(web)
    await tools(web)
    await secrets(web)
    await files(web)
    await schedules(web)
    await agents(web)
    for ago in range(29):
        await used(web, 0.06 + 0.13 * (ago * ago % 7), model=MODEL, ago=ago, session=spoken[ago % len(spoken)])
        await used(web, 0.02, model="openai/gpt-5.6-mini", ago=ago)
    owner = web.path.people.owner.id
    [(task,), *_] = await web.path.rows("select id from tasks")
    question = ReviewQuestion(
        owner, owner, "write_file", {"path": "HEARTBEAT.md"}, CHANGE, Label.UNTRUSTED, task=task, act=ToolClass.PERSIST
    )
    await web.path.database.run(lambda tx: reviews.ask(tx, question, datetime.now(UTC)))
    session = "6f2c1f0e-3b1a-4c55-9f0e-000000000001"
    write(
        folder / "logs",
        {"event": "gateway.ready", "url": "http://127.0.0.1:8787", "seconds": 0.71},
        {"event": "channel.opened", "channel": "telegram"},
        {"event": "turn.finished", "session_id": session, "tokens": 1234, "model": MODEL},
        {"event": "channel.silent", "level": "warning", "channel": "whatsapp"},
        {"event": "reminder.sent", "session_id": session, "channel": "telegram"},
        {"event": "model.retry", "level": "warning", "session_id": session, "model": MODEL, "seconds": 5},
        {"event": "turn.finished", "session_id": session, "tokens": 2210, "model": MODEL},
    )
    for name, scope in (("laptop", "chat"), ("home-assistant", "chat")):
        await tokens.create(web.backend.database, owner, name, [scope])


async def skills(web: Web) -> None:
    """One that is on, and one that waits for a decision."""
    library = web.backend.tools.skills
    put(web.path.workspace, "meeting-notes", text=skill_md("meeting-notes", NOTES, "version: 1.1.0\n"))
    await library.confirm("meeting-notes", (await library.get("meeting-notes")).look.sha256)
    fields = {"fields.md": "Text fields take plain text.\n"}
    put(web.path.workspace, "pdf-forms", text=skill_md("pdf-forms", FORMS, "version: 1.4.0\n", STEPS), **fields)


async def files(web: Web) -> None:
    """A few notes, one that has changed since the checkpoint."""
    for path, text in {
        "notes/bike.md": CHECKLIST.replace("€20", "€25"),
        "notes/lisbon.md": "# Lisbon\n",
        "AGENTS.md": "<!-- CORE:LOCK -->\nAsk before you spend money.\n<!-- /CORE:LOCK -->\n",
        "lists/packing.md": "- tent\n",
    }.items():
        await web.backend.files.workspace.write(path, text, Label.OWNER, "text/markdown", unlocked=True)
    await web.backend.files.checkpoints.create("timer", None)
    await web.backend.files.workspace.write("notes/bike.md", CHECKLIST, Label.OWNER, "text/markdown")


async def tools(web: Web) -> None:
    """A server with a confirmed tool and a new one, and a tool file."""
    url = "http://scrapling:8000/mcp"
    configured = web.path.current.config.model_dump() | {"tools": {"mcp": {"web-fetch": {"url": url}}}}
    web.path.current.config = Config.model_validate(configured)
    offered = {"fetch": "Opens a page in a browser and returns its text.", "screenshot": "Takes a picture of a page."}
    schema = {"type": "object", "properties": {"url": {"type": "string"}}}
    listed = [ToolDefinition("web-fetch", url, name, about, schema) for name, about in offered.items()]
    await pinned_tools.record(web.backend.database, "web-fetch", listed)
    await pinned_tools.confirm(web.backend.database, listed[0].tool_name, listed[0].sha256, Use.READ)
    put_tool(web.path.workspace, text=tool_md(more="credential_secret_name: WEATHER_KEY\ncredential_type: api_key\n"))


async def secrets(web: Web) -> None:
    """One bound to a tool, one that only config.json uses."""
    live, owner = web.backend.settings.secrets, web.backend.owner.id
    assert live is not None
    bound = Binding.of(["api.example.org"], ["weather"], "header:Authorization")
    await live.vault.put(owner, "WEATHER_KEY", "a-value-of-weather", shared=True, binding=bound)
    await live.vault.put(owner, "TELEGRAM_BOT_TOKEN", "a-value-of-telegram", shared=True)
    await live.look()


async def conversations(web: Web) -> list[SessionId]:
    spoken: list[SessionId] = []
    said: list[tuple[float, str, Address | None, tuple[str, ...]]] = [
        (0.02, "telegram", Address("telegram", "bot", "1"), ("What is on my calendar this week?", WEEK)),
        (
            0.9,
            "web",
            Address("web", "page", "2"),
            (
                "Plan two days in Lisbon in May",
                "Day one: **Alfama** on foot, the evening by the **Tejo**. Day two: Belém.",
            ),
        ),
        (
            2.1,
            "slack",
            Address("slack", "team", "D1"),
            ("Summarise the minutes of Monday's meeting", "Three decisions…"),
        ),
        (
            4,
            "terminal",
            Address("terminal", "local", "main"),
            ("Why does my cron line run twice?", "It has two stars…"),
        ),
        (8, "whatsapp", Address("whatsapp", "me", "49170"), ("How long does rhubarb cake keep?", "Two days.")),
        (11, "web", Address("web", "page", "3"), ("Compare heat pumps for a house of 120 m²", "Three fit…")),
        (15, "api", Address("api", "token", "c1"), ("Rename these variables in parse.py", "Done.")),
    ]
    for days, channel, at, texts in reversed(said):
        session = await talk(web, *texts, at=at, ended=channel == "web")
        spoken.append(session)
        await aged(web, "messages", "session_id", session, days)
        await aged(web, "sessions", "id", session, days)
    for days in (0.4, 1.4):
        session = await talk(web, "Every morning at 8: dates and weather", "Sunny, 19 °C.", unattended=True)
        await aged(web, "messages", "session_id", session, days)
        await aged(web, "sessions", "id", session, days)
    return spoken


def as_a_real_one(model: ScriptedModel) -> Callable[[Prompt], AsyncIterator[ModelEvent]]:
    """Its answers, with a name and costs that a real one could have."""
    stream = model.stream

    async def named(prompt: Prompt) -> AsyncIterator[ModelEvent]:
        async for event in stream(prompt):
            usage = Usage(1893, 214, 1100, 0.0061)
            yield replace(event, usage=usage, model=MODEL) if isinstance(event, Reply) else event

    return named


async def aged(web: Web, table: str, column: str, id: object, days: float) -> None:
    """As if it had been then."""
    for name in {"messages": ("created_at", "sent_at"), "sessions": ("spoken_at",)}.get(table, ("created_at",)):
        await web.path.rows(
            f"update {table} set {name} = {name} - $2::interval where {column} = $1 returning 1",
            id,
            timedelta(days=days),
        )


async def memory(web: Web) -> None:
    for number, (text, more) in enumerate(
        [
            ("The rear light of the bike flickers", {"category": Category.FACT, "tags": ("bike",)}),
            ("Choir is on Tuesdays at 18:30 in the Lukas church", {"category": Category.FACT, "tags": ("dates",)}),
            ("Prefers trains to flights under 1,000 km", {"category": Category.PREFERENCE, "tags": ("travel",)}),
            ("Anna is the sister, lives in Cologne, birthday on 4 June", {"category": Category.PERSON}),
            ("Drinks green tea without sugar", {"category": Category.PREFERENCE, "pinned": True}),
        ]
    ):
        id = await keep(web, text, **more)
        await aged(web, "memories", "id", id, 3.0 * number)


async def people(web: Web) -> None:
    await ask(web, "Grace Hopper", "ABCDEFGH", "1234567")
    [grace] = await web.backend.channels.pairing.open_requests()
    await web.backend.channels.pairing.approve(grace.code)
    await ask(web, "Alan", "KMNPQRST", "7654321")


async def sign_in(browser: Browser, web: Web) -> StorageState:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(web.backend.access.sign_in_link(web.url))
    await expect(page.locator("main h1, main h2").first).to_be_visible()
    await page.wait_for_url(lambda url: not url.startswith(f"{web.page}/login"))
    state = await context.storage_state()
    await context.close()
    return state


async def take(browser: Browser, web: Web, shot: Shot, look: str, state: StorageState) -> None:
    size, scheme, scale = LOOKS[look]
    context = await browser.new_context(
        viewport=size,
        color_scheme=scheme,
        device_scale_factor=scale,
        locale="en-GB",
        timezone_id="Europe/Berlin",
        storage_state=state,
    )
    page = await context.new_page()
    await page.goto(f"{web.page}{shot.path}")
    await expect(page.locator("main h1, main h2").first).to_be_visible()
    if (connection := page.locator("#connection")) and await connection.count():
        await expect(connection).to_have_attribute("data-state", "on")
    if shot.prepare is not None:
        await shot.prepare(page)
    await page.evaluate("document.fonts.ready.then(() => document.activeElement.blur())")
    save(await page.screenshot(animations="disabled"), f"{shot.name}-{look}")
    await context.close()


def save(png: bytes, name: str) -> None:
    """A palette is enough for a page, and a third of the size."""
    whole = Image.open(io.BytesIO(png)).convert("RGB")
    palette = whole.quantize(COLOURS, kmeans=1, dither=Image.Dither.NONE)
    palette.save(FOLDER / f"{name}.png", optimize=True)


async def chat(browser: Browser, web: Web) -> None:
    """The conversation that the chat shows, held in the page."""
    web.model.says(
        ToolCall("c1", "memory_search", '{"query": "bike"}'),
        ToolCall("c2", "write_file", '{"path": "bike.md", "content": "# Before the first ride"}'),
    )
    web.model.says(CHECKLIST)
    page = await (await browser.new_context()).new_page()
    await page.goto(web.backend.access.sign_in_link(web.url))
    await page.wait_for_url(f"{web.page}/")
    await page.fill("#text", BIKE)
    await page.keyboard.press("Enter")
    await expect(page.locator(".assistant table")).to_be_visible()
    await expect(page.locator("#stop")).to_be_hidden()
    await page.context.close()


async def setups(browser: Browser, running: Running, folder: Path) -> None:
    """Setup of an empty gateway and, halfway through, with a code for Telegram."""
    environ = {"SUPACLAW_DATA": str(folder / "data"), "SUPACLAW_CONFIG": str(folder / "config.json")}
    environment = Environment.read(environ)
    setup = Setup(environment, environ, SystemClock(), lambda: load(environment.config, environ), SecretMask().add)
    active, states = ["guide/built-in"], dict[str, str]()
    started = await running.start(
        setup=setup,
        model=lambda: Description(active[0], "set in config.json", (), ()),
        states=lambda: states,
        deep_link=lambda name, code: f"https://t.me/ada_claw_bot?start={code}" if name == "telegram" else "",
    )
    state = await sign_in(browser, started.web)
    for look in LOOKS:
        await take(browser, started.web, Shot("setup", "/setup"), look, state)
    active[0], states["telegram"] = MODEL, "open"
    await started.web.backend.channels.pairing.offer()
    for look in SMALL:
        await take(browser, started.web, Shot("setup-telegram", "/setup"), look, state)
    context = await browser.new_context(viewport=DESKTOP)
    page = await context.new_page()
    await page.goto(f"{started.web.page}/login")
    save(await page.screenshot(), "login-desktop")
    await context.close()
    await started.stop()


async def lived_in(browser: Browser, running: Running, folder: Path, names: Sequence[str]) -> None:
    (folder / "config.json").write_text(CONFIG)
    desk = desk_in(folder, {})
    now = datetime.now(UTC)
    started = await running.start(
        editor=desk.editor,
        logs=folder / "logs",
        findings=lambda: FINDINGS,
        limits=lambda: Limits(day_usd=2, month_usd=20),
        model=lambda: Description(MODEL, "set in config.json", (), ()),
        states=lambda: {"telegram": "open", "whatsapp": "unreachable since 13:05 UTC: the connection was closed"},
        jobs=lambda: {
            "backup": JobState(now + timedelta(hours=9), JobRun(now - timedelta(hours=15), 4.2)),
            "heartbeat": JobState(now + timedelta(minutes=23), JobRun(now - timedelta(minutes=7), 1.9)),
            "summaries": JobState(None, JobRun(now - timedelta(minutes=2), 0.004)),
        },
    )
    await fill(started.web, folder)
    started.web.model.stream = as_a_real_one(started.web.model)
    await tasks(started.web)
    await chat(browser, started.web)
    await started.web.path.rows(
        "update principals set identities = $1 where role = 'owner' returning 1", ["telegram:123456789"]
    )
    state = await sign_in(browser, started.web)
    for _ in LOOKS:
        started.web.model.says(PEDALS)
    for shot in SHOTS:
        if not names or shot.name in names:
            for look in shot.looks:
                await take(browser, started.web, shot, look, state)
    await started.stop()


async def main(names: Sequence[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="supaclaw-screens-") as temporary:
        folder = Path(temporary)
        (workspace := folder / "workspace").mkdir()
        (workspace / "USER.md").write_text("- Time zone: Europe/Berlin\n", encoding="utf-8")
        postgres = EmbeddedPostgres(folder / "data")
        async with (
            await Database.connect(await postgres.start()) as database,
            async_playwright() as playwright,
        ):
            await migrate(database)
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            expect.set_options(timeout=30_000)
            with suppress(asyncio.CancelledError):
                async with asyncio.TaskGroup() as group:
                    running = Running(database, workspace, group)
                    if not names or "setup" in names:
                        await setups(browser, running, folder / "empty")
                    await lived_in(browser, running, folder, names)
            await browser.close()
        await postgres.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
