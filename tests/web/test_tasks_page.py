"""The screen Tasks over real HTTP: trees, their traces, questions, cancelling and forking; the owner's only."""

import asyncio
import json
import re
from uuid import uuid4

import httpx

from gateway.domain.conversation.model import ToolCall
from tests.web.conftest import BEARER, Web
from tests.web.test_tasks import ASK, start, trace

EVIL = "<b>three</b>\u202e"


async def until(browser: httpx.AsyncClient, path: str, text: str) -> str:
    async with asyncio.timeout(60):
        while True:
            if text in (shown := (await browser.get(path)).text):
                return shown
            await asyncio.sleep(0.05)


async def answered(web: Web, text: str) -> int:
    async with asyncio.timeout(60):
        while True:
            for (found,) in await web.path.rows("select id from messages where kind = 'assistant' and text = $1", text):
                return int(str(found))
            await asyncio.sleep(0.05)


async def first_event(stream: httpx.Response) -> str:
    async for line in stream.aiter_lines():
        if line.startswith("data: "):
            return line
    return ""


async def finished(web: Web, *says: str | ToolCall, input: str = "count") -> str:
    for said in says:
        web.model.says(said)
    id = (await start(web, input=input)).json()["id"]
    await trace(web, master=id)
    return str(id)


async def children(web: Web, master: str, number: int, status: str = "completed") -> None:
    """More tasks in a tree, below its first."""
    await web.path.rows(
        """insert into tasks
             (id, master_id, parent_id, kind, lane, principal_id, status, session_id, agent, depth, input)
           select gen_random_uuid(), id, id, kind, lane, principal_id, $3, session_id, agent, 1,
                  input || jsonb_build_object('name', 'child ' || n)
           from tasks, generate_series(1, $2::int) n where id = $1::text::uuid returning id""",
        master,
        number,
        status,
    )


async def test_trees_are_listed_filtered_and_shown_with_what_they_did(web: Web) -> None:
    call = ToolCall("", "save_intermediate_data", json.dumps({"data": {"pin": "hush"}}))
    async with web.sign_in() as browser:
        assert "No tasks yet" in (await browser.get("/tasks")).text
        id = await finished(web, call, EVIL)
        queries = {"": True, "status=completed&agent=main&text=COUNT": True, "status=failed": False, "text=sing": False}
        for query, found in queries.items():
            assert (f'href="/tasks/{id}"' in (await browser.get(f"/tasks?{query}")).text) is found
        assert (await browser.get("/tasks?status=odd")).status_code == 400
        shown = (await browser.get(f"/tasks/{id}")).text
        assert "<p><strong>three</strong>⟨U+202E⟩" in shown
        assert "1 of 1 task is over. $0.0040 · 36 tokens" in shown
        steps = (await browser.get(f"/tasks/{id}/trace")).text
        assert re.findall(r'data-kind="([a-z-]+)"', steps) == ["model", "tool", "model"]
        assert "hush" not in steps
        found = (await browser.get(f"/tasks/{id}/trace?q=HUSH")).text
        assert re.findall(r'data-kind="([a-z-]+)"', found) == ["model", "tool"]
        assert "No step has these words" in (await browser.get(f"/tasks/{id}/trace?q=absent")).text
        [said, called, _] = [
            (await browser.get(url)).text for url in re.findall(r'data-load="(/tasks/steps/\d+)"', steps)
        ]
        assert re.findall(r"<b>(\w+)</b> <span class=.badge.>(\w+)<", called) == [
            ("Arguments", "trusted"),
            ("Result", "trusted"),
        ]
        assert "hush" in called
        assert "Arguments" in said
        assert "Nothing yet" in (await browser.get(f"/tasks/{id}/trace?since=1000000")).text


async def test_one_is_started_from_the_page_and_its_result_is_read_there(web: Web) -> None:
    web.model.says("## Offers\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n<img src=x onerror=alert(1)>")
    async with web.sign_in() as browser:
        assert (await browser.post("/tasks", data={"input": " "})).status_code == 400
        assert (await browser.post("/tasks", data={"input": "x", "agent": "nobody"})).status_code == 400
        started = {"input": "Compare the offers", "agent": "main", "budget": "0.25"}
        assert (await browser.post("/tasks", data=started)).status_code == 204
        [(id, budget, label)] = await web.path.rows("select id::text, budget_usd, input -> 'label' from tasks")
        assert (budget, label) == (0.25, 0)
        shown = await until(browser, f"/tasks/{id}", "1 of 1 task is over")
        listed = (await browser.get("/tasks")).text
    assert "<h2>Offers</h2>" in shown
    assert "<td>1</td>" in shown
    assert "<img src=x" not in shown
    assert '<h2 id="Done">Done</h2>' in listed
    denied = await web.client.post("/tasks", data=started, headers={**BEARER, "Origin": web.url})
    assert denied.status_code == 401
    assert await web.path.rows("select from outbox") == []


async def test_trees_are_grouped_by_state_sorted_and_show_where_their_to_do_list_is(web: Web) -> None:
    [cheap, dear] = [await finished(web, "three", input=name) for name in ("cheap", "dear")]
    await web.path.rows("update task_steps set cost_usd = 9 where task_id = $1::text::uuid returning id", dear)
    await web.path.rows("update tasks set created_at = now() where id = $1::text::uuid returning id", cheap)
    web.path.worker.limit(0)
    live = (await start(web, input="live")).json()["id"]
    steps = [{"text": "Look", "done": True}, {"text": "Compare", "done": False}]
    await web.path.rows(
        """insert into todo_lists (task_id, principal_id, steps, label, ordinal)
           select id, principal_id, $2, 0, 1 from tasks where id = $1::text::uuid returning task_id""",
        live,
        steps,
    )
    async with web.sign_in() as browser:
        newest, costly = [(await browser.get(f"/tasks?sort={sort}")).text for sort in ("newest", "cost")]
        assert "step 2 of 2: <bdi>Compare</bdi>" in (await browser.get(f"/tasks/{live}")).text
        assert (await browser.get("/tasks?sort=odd")).status_code == 400
    order = re.findall(r'<h2 id="[\w-]+">([\w ]+)<|>(cheap|dear|live)</a>', newest.partition("<dialog")[0])
    assert [heading or name for heading, name in order] == ["Under way", "live", "Done", "cheap", "dear"]
    assert costly.index(">dear<") < costly.index(">cheap<")
    assert "step 2 of 2: <bdi>Compare</bdi>" in newest


async def test_an_answers_turn_has_a_trace_of_its_own(web: Web) -> None:
    web.model.says(ToolCall("", "bash", '{"command": "echo <i>hi</i>"}'))
    web.model.says("It says hi.")
    async with web.sign_in() as browser:
        await browser.post("/chat", data={"client_id": "1", "text": "Say hi"})
        answer = await answered(web, "It says hi.")
        shown = (await browser.get(f"/turns/{answer}")).text
        assert re.findall(r'data-kind="([a-z-]+)"', shown) == ["model", "tool", "model"]
        [_, called, _] = re.findall(r'data-load="(/tasks/steps/\d+)"', shown)
        assert "&lt;i&gt;hi" in (await browser.get(called)).text
        assert (await browser.get(f"/turns/{answer + 1000}")).status_code == 404
    assert (await web.client.get(called, headers=BEARER)).status_code == 401


async def test_a_question_is_pinned_and_cancelling_ends_the_tree(web: Web) -> None:
    web.model.says(ASK)
    id = (await start(web)).json()["id"]
    async with web.sign_in() as browser:
        shown = await until(browser, f"/tasks/{id}", "Waits for your answer")
        assert shown.index('id="asked"') < shown.index(f'id="n{id}"')
        assert 'href="/approvals#A1"' in shown
        assert 'action="/approvals/A1/approve"' in shown
        listed = (await browser.get("/tasks?status=failed")).text
        assert listed.index("Waits for your answer") < listed.index("Shall I?")
        assert "A1 asks you" in (await browser.get("/tasks")).text
        async with browser.stream("GET", f"/tasks/{id}/events") as stream:
            assert "Waits for your answer" in await first_event(stream)
        assert (await browser.post(f"/tasks/{id}/cancel")).status_code == 204
        shown = (await browser.get(f"/tasks/{id}")).text
    assert ("cancelled" in shown, "Waits for your answer" in shown) == (True, False)
    assert f"/tasks/{id}/cancel" not in shown


async def test_a_fork_is_compared_with_its_source(web: Web) -> None:
    id = await finished(web, "three")
    async with web.sign_in() as browser:
        [step] = re.findall(r"fork\?at=(\d+)", (await browser.get(f"/tasks/{id}/trace")).text)
        web.model.says("four")
        answer = (await browser.post(f"/tasks/{id}/fork?at={step}", data={"model": " openai/other "})).text
        [made] = re.findall(r'href="/tasks/([0-9a-f-]{36})"', answer)
        await until(browser, f"/tasks/{made}", "1 of 1 task is over")
        assert f"/tasks/{made}/compare?to={id}" in (await browser.get(f"/tasks/{made}")).text
        both = (await browser.get(f"/tasks/{made}/compare?to={id}")).text
    assert both.index("three") < both.index("four")
    assert "The first step is alike" in both
    assert await web.path.rows("select input ->> 'model' from tasks where id = $1::text::uuid", made) == [
        ("openai/other",)
    ]


async def test_a_large_tree_is_counted(web: Web) -> None:
    id = await finished(web, "three")
    await children(web, id, 205)
    async with web.sign_in() as browser:
        shown = (await browser.get(f"/tasks/{id}")).text
    assert shown.count("<article") == 200
    assert "and 6 more tasks" in shown
    assert shown.count('data-depth="1"') == 199
    assert shown.count("<rect") == 200


async def test_a_subtree_is_cancelled_alone(web: Web) -> None:
    web.model.says(ASK)
    id = (await start(web)).json()["id"]
    async with web.sign_in() as browser:
        await until(browser, f"/tasks/{id}", "A1 asks you")
        await children(web, id, 2, "pending_subtask")
        [(first,), _] = await web.path.rows("select id from tasks where parent_id = $1::text::uuid order by seq", id)
        assert (await browser.post(f"/tasks/{first}/cancel")).status_code == 204
        shown = (await browser.get(f"/tasks/{id}")).text
    assert shown.count(">cancelled<") == 1
    assert "Waits for your answer" in shown


async def test_only_the_owners_browser_sees_or_changes_a_tree(web: Web) -> None:
    id = await finished(web, "three")
    for path in ("/tasks", f"/tasks/{id}", f"/tasks/{id}/compare?to={id}"):
        answer = await web.client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    for path in ("/tasks/events", f"/tasks/{id}/events", f"/tasks/{id}/trace"):
        assert (await web.client.get(path, headers=BEARER)).status_code == 401
    for path in (f"/tasks/{id}/cancel", f"/tasks/{id}/fork?at=1"):
        assert (await web.client.post(path, headers={**BEARER, "Origin": web.url})).status_code == 401
    async with web.sign_in() as browser:
        missing = uuid4()
        for path in (f"/tasks/{missing}", f"/tasks/{missing}/trace", f"/tasks/{missing}/compare?to={id}"):
            assert (await browser.get(path)).status_code == 404
        for path in (f"/tasks/{missing}/cancel", f"/tasks/{missing}/fork?at=1"):
            assert (await browser.post(path)).status_code == 404
        assert (await browser.post(f"/tasks/{id}/cancel", headers={"Origin": "http://evil.example"})).status_code == 403
