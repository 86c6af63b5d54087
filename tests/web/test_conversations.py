"""The screen Conversations over real HTTP: what it lists and finds, whose, and what each of its forms does."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest

from gateway.background.upkeep.housekeeping import Retention
from gateway.config.machine import SystemClock
from gateway.config.model import Retention as RetentionSettings
from gateway.domain.conversation.inbound import Address, Inbound, Sender
from gateway.domain.conversation.transcript import AssistantText, Entry, UserText
from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.store.delivery import addresses
from gateway.store.memory import indexing
from gateway.store.people import tokens
from gateway.store.transcript import messages, sessions
from gateway.store.work import tasks
from gateway.web.live.conversations import Conversations
from gateway.web.pages import STATIC
from gateway.web.screens.chat import ADDRESS
from tests.web.conftest import BEARER, Web
from tests.web.test_memory_page import someone

TELEGRAM = Address("telegram", "bot", "123")
HOSTILE = '<script>alert(1)</script> "><img src=x> \u202e evil'


async def talk(
    web: Web,
    *texts: str,
    at: Address | None = None,
    principal: PrincipalId | None = None,
    label: Label = Label.OWNER,
    unattended: bool = False,
    ended: bool = False,
) -> SessionId:
    """A conversation: what the person said, and what was answered, in turns."""
    whose = principal or web.backend.owner.id
    async with web.backend.database.transaction() as tx:
        session = await sessions.start(tx, whose, label, unattended=unattended)
        place = None
        if at is not None:
            await addresses.add(tx, at, whose, session, private=True)
            found = await addresses.find(tx, at)
            place = found.id if found else None
        for number, text in enumerate(texts):
            entry: Entry = AssistantText(text) if number % 2 else UserText(text, datetime.now(UTC))
            origin = "schedule" if unattended else at.channel if at else "web"
            await messages.say(tx, session, whose, entry, label=label, origin=origin, address=place)
        if ended:
            await addresses.move(tx, session, await sessions.start(tx, whose, label))
            await sessions.end(tx, session)
    async with web.backend.database.transaction() as tx:
        await indexing.index_turns(tx, None, 500)
    return session


def shown(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return re.findall(r'<article class="row conversation" id="c([0-9a-f-]+)"', answer.text)


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(30):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.02)


async def test_an_empty_list_says_what_will_be_there(web: Web):
    async with web.sign_in() as browser:
        assert "No conversations yet" in (await browser.get("/c")).text
        assert "No automated runs yet" in (await browser.get("/c?automation=true")).text
        assert "No matches" in (await browser.get("/c/rows", params={"q": "heron"})).text


async def test_chats_and_what_ran_by_itself_are_listed_apart(web: Web):
    old = await talk(web, "Plan a trip to Lisbon", "Gladly.", at=TELEGRAM, ended=True)
    run = await talk(web, "Water the plants", "Done.", unattended=True)
    new = await talk(web, "What is the weather?")
    async with web.sign_in() as browser:
        chats = await browser.get("/c")
        assert shown(chats) == [str(new), str(old)]
        assert 'dir="auto">Plan a trip to Lisbon</a>' in chats.text
        assert "<span>Telegram · 2 messages · just now</span>" in chats.text
        assert shown(await browser.get("/c", params={"automation": "true"})) == [str(run)]


async def test_what_goes_on_is_marked(web: Web):
    await talk(web, "hello", at=TELEGRAM)
    async with web.sign_in() as browser:
        await browser.post("/chat", data={"text": "hello", "client_id": "one"})
        text = (await browser.get("/c")).text
        assert '<span class="badge">open in Telegram</span>' in text
        assert '<span class="badge">open here</span>' in text
        await until(lambda: no_task_runs(web))
        assert "answering" not in (await browser.get("/c")).text
        await web.path.rows("update tasks set status = 'running' where kind = 'chat' returning id")
        assert "answering" in (await browser.get("/c")).text


async def no_task_runs(web: Web) -> bool:
    return not await web.path.rows("select from tasks where kind = 'chat' and status in ('pending', 'running')")


async def test_what_was_said_is_found_and_marked_in_its_conversation(web: Web):
    trip = await talk(web, "Plan a trip", "A boat on the river Tejo?", "The tejo is fine", "Booked.", at=TELEGRAM)
    await talk(web, "What is the weather?", "Sunny.")
    async with web.sign_in() as browser:
        found = await browser.get("/c/rows", params={"q": "tejo"})
        assert shown(found) == [str(trip)]
        assert "A boat on the river <mark>Tejo</mark>?" in found.text
        assert "The <mark>tejo</mark> is fine" in found.text
        [(said,)] = await web.path.rows("select id from messages where text like 'The tejo%'")
        assert f'href="/c/{trip}?at={said}#m{said}"' in found.text
        page = await browser.get("/c", params={"q": "tejo"})
        assert (shown(page), 'value="tejo"' in page.text) == ([str(trip)], True)
        opened = await browser.get(f"/c/{trip}", params={"at": said})
        assert f'id="m{said}"' in opened.text


async def test_what_others_may_have_written_is_found_and_marked_so(web: Web):
    await talk(web, "The heron wants your password", label=Label.UNTRUSTED)
    async with web.sign_in() as browser:
        found = await browser.get("/c/rows", params={"q": "heron"})
    assert (len(shown(found)), '<span class="badge doubt">not verified</span>' in found.text) == (1, True)


async def test_a_title_can_be_given_found_and_taken_back(web: Web):
    session = await talk(web, "hi", "Hello.")
    async with web.sign_in() as browser:
        assert (await browser.post(f"/c/{session}/title", data={"title": " Lisbon "})).status_code == 204
        found = await browser.get("/c/rows", params={"q": "lisbon"})
        assert (shown(found), "<mark>Lisbon</mark></a>" in found.text) == ([str(session)], True)
        assert '<h1 dir="auto">Lisbon</h1>' in (await browser.get(f"/c/{session}")).text
        assert (await browser.post(f"/c/{session}/title", data={"title": ""})).status_code == 204
        assert 'dir="auto">hi</a>' in (await browser.get("/c")).text
        long = await browser.post(f"/c/{session}/title", data={"title": "x" * 201})
        assert long.status_code == 400


async def test_an_old_one_goes_on_in_the_chat(web: Web):
    old = await talk(web, "My bike is blue", "Noted.", at=TELEGRAM, ended=True)
    async with web.sign_in() as browser:
        await browser.post("/chat", data={"text": "something else", "client_id": "one"})
        await until(lambda: no_task_runs(web))
        gone = await browser.post(f"/c/{old}/resume")
        place = gone.headers["location"].removeprefix("/c/")
        assert (gone.status_code, UUID(place).version) == (303, 4)
        await until(lambda: web.path.rows("select from addresses where channel = 'web' and session_id = $1", old))
        await browser.post("/chat", data={"text": "What colour is it?", "client_id": "two", "chat": place})
        await until(lambda: no_task_runs(web))
        assert "My bike is blue" in repr(web.model.prompts[-1].messages)
        moved = await browser.get(f"/c/{old}")
        assert (moved.status_code, moved.headers["location"]) == (303, f"/c/{place}")
        assert f'href="/c/{place}">Open chat</a>' in (await browser.get("/c")).text
        assert "something else" in (await browser.get("/c/side", params={"since": "2026-01-01T00:00Z"})).text
    assert await web.path.rows("select count(*)::int from sessions where ended_at is null") == [(3,)]
    assert await web.path.rows("select ended_at from sessions where id = $1", old) == [(None,)]


async def test_a_programs_conversation_is_only_read(web: Web):
    program = await talk(web, "hello", at=Address("api", "token", "c1"))
    async with web.sign_in() as browser:
        page = (await browser.get(f"/c/{program}")).text
        assert "You can read this one but not continue it" in page
        assert f"/c/{program}/resume" not in page
        await browser.post(f"/c/{program}/resume")
        await until(
            lambda: web.path.rows("select from messages where kind = 'notice' and text like '%not continue it%'")
        )
    assert await web.path.rows("select channel from addresses where session_id = $1", program) == [("api",)]


async def test_a_long_one_is_read_in_stretches(web: Web):
    long = await talk(web, *(f"entry {number}." for number in range(1, 451)))
    async with web.sign_in() as browser:
        end = (await browser.get(f"/c/{long}")).text
        assert ("entry 450." in end, "entry 250." in end) == (True, False)
        assert f'href="/c/{long}?from=51"' in end
        middle = (await browser.get(f"/c/{long}", params={"from": 51})).text
        assert ("entry 51." in middle, "entry 250." in middle, "entry 251." in middle) == (True, True, False)
        assert f'href="/c/{long}?from=251"' in middle
        assert f'href="/c/{long}?from=1"' in middle
        start = (await browser.get(f"/c/{long}", params={"from": 1})).text
        assert ">Earlier</a>" not in start


async def test_older_ones_are_a_page_away(web: Web):
    ids = [str(await talk(web, f"chat {number}")) for number in range(52)]
    async with web.sign_in() as browser:
        first = await browser.get("/c")
        assert shown(first) == ids[:1:-1]
        assert 'href="/c?skip=50">Older</a>' in first.text
        assert shown(await browser.get("/c", params={"skip": 50})) == ids[1::-1]


async def test_it_is_taken_along_as_a_file(web: Web):
    session = await talk(web, "Plan a trip", "Gladly.", "Thanks, that is all")
    async with web.sign_in() as browser:
        text = await browser.get(f"/c/{session}/export")
        assert re.fullmatch(
            r"attachment; filename\*=UTF-8''\d{4}-\d\d-\d\d-plan-a-trip\.md", text.headers["content-disposition"]
        )
        assert text.headers["content-type"].startswith("text/markdown")
        assert "Thanks, that is all" in text.text
        data = await browser.get(f"/c/{session}/export", params={"form": "json"})
        assert [row["text"] for row in json.loads(data.text)["messages"]] == [
            "Plan a trip",
            "Gladly.",
            "Thanks, that is all",
        ]
        assert (await browser.get(f"/c/{session}/export", params={"form": "exe"})).status_code == 400


async def test_words_of_others_are_words_everywhere(web: Web):
    session = await talk(web, HOSTILE, HOSTILE)
    await web.path.rows("update sessions set title = $1 returning id", HOSTILE)
    async with web.sign_in() as browser:
        for path in ("/c", "/c?q=evil", f"/c/{session}"):
            text = (await browser.get(path)).text
            assert "alert" in text
            assert not re.search(r"<script>|<img src=x", text), path
            assert "\u202e" not in re.sub(r'(?s)<div class="thread">.*', "", text), path


async def test_only_the_owners_own_conversations_are_there(web: Web):
    theirs = await talk(web, "Bo keeps a secret heron", principal=await someone(web))
    async with web.sign_in() as browser:
        for query in ({}, {"q": "secret heron"}, {"automation": "true"}):
            assert shown(await browser.get("/c/rows", params=query)) == []
        [(said,)] = await web.path.rows("select id from messages")
        for path in (f"/c/{theirs}", f"/c/{theirs}/export", f"/memory/said/{said}"):
            assert (await browser.get(path)).status_code == 404, path
        assert (await browser.post(f"/c/{theirs}/title", data={"title": "mine"})).status_code == 404
        mine = await talk(web, "hello")
        assert "heron" not in (await browser.get(f"/c/{mine}", params={"at": said})).text
        await browser.post(f"/c/{theirs}/resume")
        await until(lambda: web.path.rows("select from messages where kind = 'notice'"))
    assert await web.path.rows("select from addresses where session_id = $1", theirs) == []
    assert await web.path.rows("select title from sessions where id = $1", theirs) == [(None,)]


async def test_a_token_reaches_nothing_here(web: Web):
    session = await talk(web, "The heron nests at the weir")
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "all", ("read", "chat", "admin"))
    for headers in (BEARER, {"Authorization": f"Bearer {plain}"}):
        for path in ("/c", f"/c/{session}"):
            assert (await web.client.get(path, headers=headers)).status_code == 303, path
        for path in ("/c/rows", f"/c/{session}/export"):
            assert (await web.client.get(path, headers=headers)).status_code == 401, path
        for what in ("title", "resume", "mark", "delete"):
            answer = await web.client.post(
                f"/c/{session}/{what}", headers={**headers, "Origin": web.url}, data={"title": "x"}
            )
            assert answer.status_code == 401, what
        listed = await web.client.get("/api/sessions", headers=headers)
        assert "heron" not in listed.text
    assert await web.path.rows("select title from sessions where id = $1", session) == [(None,)]


async def test_a_token_resumes_nothing_by_the_command(web: Web):
    session = await talk(web, "hello", at=TELEGRAM)
    sender = Sender("owner", web.backend.owner.name)
    said = Inbound(
        Address("api", "token", "c1"),
        sender,
        f"/resume {session}",
        "one",
        datetime.now(UTC),
        private=True,
        as_owner=True,
    )
    for as_owner in (False, True):
        told = replace(said, as_owner=as_owner, platform_id=str(uuid4()))
        await web.backend.chat.inbox.accept([told])
    await until(lambda: web.path.rows("select from messages where kind = 'notice' having count(*) = 2"))
    assert await web.path.rows("select channel from addresses where session_id = $1", session) == [("telegram",)]


async def test_a_foreign_page_changes_nothing(web: Web):
    session = await talk(web, "hello")
    async with web.sign_in() as browser:
        for what in ("title", "resume", "mark", "delete"):
            answer = await browser.post(
                f"/c/{session}/{what}", headers={"Origin": "http://evil.example"}, data={"title": "x"}
            )
            assert answer.status_code == 403
    assert await web.path.rows("select title from sessions where id = $1", session) == [(None,)]
    assert await web.path.rows("select from inbox where channel = $1", ADDRESS.channel) == []


@pytest.mark.parametrize("bad", ["/c/x", "/c/rows?skip=-1", f"/c/{UUID(int=1)}?from=0"])
async def test_an_address_that_means_nothing_is_refused(web: Web, bad: str):
    async with web.sign_in() as browser:
        assert (await browser.get(bad)).status_code == 400
        assert (await browser.get(f"/c/{uuid4()}")).status_code == 404


async def write(web: Web, browser: httpx.AsyncClient, text: str, chat: UUID | str | None = None) -> None:
    """In a chat of the page; returns once it is answered."""
    data = {"text": text, "client_id": str(uuid4()), **({"chat": str(chat)} if chat else {})}
    assert (await browser.post("/chat", data=data)).status_code == 202
    await until(lambda: no_task_runs(web))


async def test_chats_of_the_page_run_side_by_side(web: Web):
    one, two = uuid4(), uuid4()
    async with web.sign_in() as browser:
        assert (await browser.get(f"/c/{one}")).status_code == 404
        fresh = (await browser.get("/c/new")).text
        assert "data-fresh" in fresh
        await write(web, browser, "The bike is blue")
        await write(web, browser, "The car is red", one)
        await write(web, browser, "The boat is green", two)
        await write(web, browser, "And it is fast", one)
        assert "The car is red" in repr(web.model.prompts[-1].messages)
        assert "blue" not in repr(web.model.prompts[-1].messages)
        [(session,)] = await web.path.rows("select session_id from addresses where thread = $1", str(one))
        side = (await browser.get("/c/side", params={"since": "2026-01-01T00:00Z"})).text
        assert re.findall(r'href="([^"]+)"', side) == [f"/c/{one}", f"/c/{two}", "/"]
        page = (await browser.get(f"/c/{one}")).text
        assert f'data-stream="/chat/events?chat={one}"' in page
        assert 'dir="auto">The car is red</h1>' in page
        assert (await browser.get(f"/c/{session}")).headers["location"] == f"/c/{one}"
        await write(web, browser, "/new", one)
        assert f'data-chat="{one}"' in (await browser.get(f"/c/{one}")).text
        read = (await browser.get(f"/c/{session}")).text
        assert ("And it is fast" in read, ">Continue</button>" in read) == (True, True)
    assert len(await web.path.rows("select from sessions where ended_at is null")) == 3


async def test_a_chat_is_pinned_archived_and_searched(web: Web):
    old = await talk(web, "Plan a trip", "Along the Tejo?", at=TELEGRAM)
    new = await talk(web, "The tejo is dry", "A pity.")
    async with web.sign_in() as browser:
        since = {"since": "2999-01-01T00:00Z"}
        assert (await browser.post(f"/c/{old}/mark", params={"mark": "pinned"})).status_code == 204
        side = (await browser.get("/c/side", params=since)).text
        assert [side.index(each) for each in (">Pinned<", str(old), ">Earlier<", str(new))] == sorted(
            side.index(each) for each in (">Pinned<", str(old), ">Earlier<", str(new))
        )
        found = await browser.get("/c/rows", params={"q": "tejo", "within": str(new)})
        assert shown(found) == [str(new)]
        await browser.post(f"/c/{old}/mark", params={"mark": "archived"})
        assert shown(await browser.get("/c")) == [str(new)]
        assert shown(await browser.get("/c", params={"archive": "true"})) == [str(old)]
        assert str(old) not in (await browser.get("/c/side", params=since)).text
        await browser.post(f"/c/{old}/mark")
        assert shown(await browser.get("/c")) == [str(new), str(old)]
        printed = (await browser.get(f"/c/{old}/print")).text
        assert ("Along the Tejo?" in printed, "<script" in printed) == (True, False)


async def test_a_deleted_chat_is_in_no_list_and_no_search(web: Web):
    place = uuid4()
    async with web.sign_in() as browser:
        await write(web, browser, "The heron nests at the weir", place)
        [(gone,)] = await web.path.rows("select session_id from addresses where thread = $1", str(place))
        await web.path.database.run(lambda tx: indexing.index_turns(tx, None, 500))
        assert shown(await browser.get("/c/rows", params={"q": "heron"})) == [str(gone)]
        await web.path.rows(
            "update tasks set status = 'pending', run_at = now() + '1 day' where kind = 'chat' returning id"
        )
        assert (await browser.post(f"/c/{gone}/delete")).status_code == 409
        await web.path.rows("update tasks set status = 'completed' where kind = 'chat' returning id")
        assert (await browser.post(f"/c/{gone}/delete")).headers["location"] == "/c"
        assert shown(await browser.get("/c")) == []
        assert shown(await browser.get("/c/rows", params={"q": "heron"})) == []
        assert (await browser.get(f"/c/{gone}")).status_code == 404
        await write(web, browser, "hello", place)
        assert "heron" not in repr(web.model.prompts[-1].messages)
    assert await web.path.rows("select from memories where kind = 'turn' and forgotten_at is null") == []
    assert len(await web.path.rows("select from messages where session_id = $1", gone)) == 2


async def test_the_result_of_a_task_knows_its_name(web: Web):
    session, owner = await talk(web, "Compare the offers"), web.backend.owner.id
    async with web.path.database.transaction() as tx:
        task = await tasks.create(tx, owner, "agent", Lane.AGENTS, payload={"name": "Compare the offers, all three"})
        entry = AssistantText("B is best.", final=False)
        await messages.say(tx, session, owner, entry, label=Label.OWNER, origin="task", task=task)
    shown = await Conversations(web.path.database, web.path.live).snapshot(session)
    assert [row.command for row in shown.rows] == ["", "Compare the offers, all three"]


async def test_the_addresses_from_before_lead_there(web: Web):
    session = await talk(web, "hello")
    async with web.sign_in() as browser:
        for old, new in (
            ("/conversations", "/c"),
            ("/conversations?q=x", "/c?q=x"),
            (f"/conversations/{session}?at=1", f"/c/{session}?at=1"),
            ("/approvals", "/inbox"),
        ):
            assert (await browser.get(old)).headers["location"] == new


def test_every_channels_icon_exists():
    parts = (STATIC.parent / "templates" / "conversation_parts.html").read_text()
    [named] = re.findall(r"set icons = (\{.*?\})", parts)
    icons = (STATIC / "vendor" / "icons.svg").read_text()
    assert [name for name in json.loads(named).values() if f'id="{name}"' not in icons] == []


async def test_a_temporary_chat_learns_and_leaves_nothing(web: Web, tmp_path: Path):
    place = f"temporary-{uuid4()}"
    rows, database = web.path.rows, web.path.database
    async with web.sign_in() as browser:
        await write(web, browser, "The heron nests at the weir")
        await database.run(lambda tx: indexing.index_turns(tx, None, 500))
        assert "data-fresh" in (await browser.get("/c/new?temporary=true")).text
        await write(web, browser, "Does the heron eat kingfishers?", place)
        told = web.model.prompts[-1]
        assert "weir" not in repr(told)
        assert not {"memory_search", "memory_get", "remember", "forget"} & {tool.name for tool in told.tools}
        assert "read_file" in {tool.name for tool in told.tools}
        page = (await browser.get(f"/c/{place}")).text
        assert "End and delete" in page
        await database.run(lambda tx: indexing.index_turns(tx, None, 500))
        assert await web.path.journal.catch_up()
        for listed in ("/c", "/c/rows?q=kingfishers", "/c/side?since=2026-01-01T00:00:00Z"):
            assert "kingfishers" not in (await browser.get(listed)).text
        kept = {path.name: path.read_text() for path in web.path.workspace.rglob("*.md")}
        assert any("weir" in text for text in kept.values())
        assert not [name for name, text in kept.items() if "kingfishers" in text]
        at = "select session_id from addresses where thread = $1"
        [(first,)] = await rows(at, place)

        await write(web, browser, "/new", place)
        [(second,)] = await rows(at, place)
        assert (await browser.get(f"/c/{first}")).status_code == 404
        await write(web, browser, "And what about otters?", place)
        await rows("update sessions set spoken_at = now() - interval '2 days' where id = $1 returning 1", second)
        await Retention(database, tmp_path, RetentionSettings, SystemClock()).run()
        assert (await browser.get(f"/c/{second}")).status_code == 404
        await write(web, browser, "What did I say?", place)
        assert "otters" not in repr(web.model.prompts[-1])
    assert await rows("select from tasks where kind = 'summarise'") == []
    assert await rows("select from memories where session_id = any($1)", [first, second]) == []
