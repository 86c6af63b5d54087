"""Programs start, follow, list and cancel trees over real HTTP, and ask an agent as a model."""

import asyncio
import json
from uuid import uuid4

import httpx
import pytest
from openai import AsyncOpenAI

from gateway.domain.conversation.model import ToolCall
from gateway.store.people import tokens
from tests.fakes.eventually import eventually
from tests.journeys.process import until
from tests.web.conftest import BEARER, LOCAL_TOKEN, Web

Headers = dict[str, str]
ASK = ToolCall("", "request_human_review", json.dumps({"question": "Shall I?"}))


def agent(web: Web, slug: str, *head: str) -> None:
    folder = web.path.workspace / ".agents" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"name: {slug}", f"description: does {slug}", *head]
    (folder / f"{slug}.md").write_text("\n".join(["---", *lines, "---", f"You are the {slug}."]))


async def bearer(web: Web, *scopes: str, source: str | None = None) -> Headers:
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, str(uuid4()), scopes, source=source)
    return {"Authorization": f"Bearer {plain}"}


async def stored(web: Web, query: str, value: object) -> bool:
    """Whether the query finds just this value."""
    return await web.path.rows(query) == [(value,)]


async def start(web: Web, headers: Headers = BEARER, **body: object) -> httpx.Response:
    return await web.client.post("/api/tasks", json={"input": "count", **body}, headers=headers)


async def trace(web: Web, headers: Headers = BEARER, last: int | None = None, **query: str) -> list[dict[str, object]]:
    """The whole stream, until it ends."""
    more = {} if last is None else {"Last-Event-ID": str(last)}
    async with web.client.stream("GET", "/api/events", params=query, headers={**headers, **more}) as stream:
        if stream.status_code != 200:
            return [{"type": stream.status_code}]
        return [json.loads(line[6:]) async for line in stream.aiter_lines() if line.startswith("data: ")]


async def test_a_tree_is_started_once_followed_to_its_end_resumed_and_listed(web: Web) -> None:
    web.model.says(ToolCall("", "save_intermediate_data", json.dumps({"data": {"pin": "hush"}})))
    web.model.says("three")
    made = (await start(web, idempotency_key="k")).json()
    assert (await start(web, idempotency_key="k")).json()["id"] == made["id"]
    assert (await start(web, idempotency_key="k", input="other")).status_code == 409
    seen = await trace(web, master=made["id"])
    found = [event for event in seen if event["type"] == "step"]
    assert [(step["kind"], step["ok"]) for step in found] == [
        ("model", None),
        ("intent", None),
        ("tool", True),
        ("model", None),
    ]
    assert seen[-1] == {"type": "end", "counts": {"completed": 1}}
    assert "hush" not in json.dumps(seen)
    again = await trace(web, task=made["id"], last=int(str(found[1]["id"])))
    assert [event for event in again if event["type"] == "step"] == found[2:]
    assert await trace(web, master=made["id"], last=int(str(found[-1]["id"]))) == [{"type": 204}]

    [listed] = (await web.client.get("/api/tasks?status=completed&agent=main&text=COUNT", headers=BEARER)).json()
    assert (listed["id"], listed["counts"], listed["cost_usd"]) == (made["id"], {"completed": 1}, 0.004)
    assert (await web.client.get(f"/api/tasks?before={made['id']}", headers=BEARER)).json() == []
    whole = (await web.client.get(made["status_url"], headers=BEARER)).json()
    assert (whole["result"], [node["status"] for node in whole["tree"]], whole["tokens"]) == (
        "three",
        ["completed"],
        36,
    )
    assert await web.path.rows("select from outbox") == [], "no chat is told"


async def test_a_token_is_trusted_and_sees_no_more_than_its_scopes_say(web: Web) -> None:
    web.path.worker.limit(0)
    trigger, reads, chats = await bearer(web, "trigger"), await bearer(web, "read"), await bearer(web, "chat")
    for headers, label, private in ((BEARER, 0, True), (await bearer(web, "admin"), 1, False), (trigger, 2, False)):
        made = (await start(web, headers)).json()
        [(given, memory)] = await web.path.rows(
            "select (input -> 'label')::int, (input -> 'private')::bool from tasks where id = $1::text::uuid",
            made["id"],
        )
        assert (given, memory) == (label, private)
    for headers in (reads, chats, await bearer(web, "trigger", source="ci")):
        assert (await start(web, headers)).status_code == 403
    own = (await web.client.get(f"/api/tasks/{made['id']}", headers=trigger)).json()
    assert (own["status"], own["result"], "tree" in own) == ("pending", None, False)
    for headers in (trigger, chats):
        assert await trace(web, headers, master=made["id"]) == [{"type": 403}]
        assert (await web.client.get("/api/tasks", headers=headers)).status_code == 403
    assert await trace(web, reads, master=str(uuid4())) == [{"type": 404}]


async def test_the_master_is_cancelled_by_who_may(web: Web) -> None:
    web.model.says(ASK)
    trigger, other = await bearer(web, "trigger"), await bearer(web, "trigger")
    made = (await start(web, trigger)).json()
    cancel = f"/api/tasks/{made['id']}/cancel"
    assert (await web.client.post(cancel, headers=other)).status_code == 404
    assert (await web.client.post(cancel, headers=trigger)).json() == {"status": "cancelled"}
    assert (await trace(web, master=made["id"]))[-1] == {"type": "end", "counts": {"cancelled": 1}}
    assert (await start(web, agent="nobody")).json()["error"]["code"] == "unknown_agent"


async def test_a_program_answers_what_its_own_tree_asks_in_words_and_approves_nothing(web: Web) -> None:
    web.model.says(ASK)
    web.model.says(ASK)
    own, other = await bearer(web, "trigger"), await bearer(web, "trigger")
    made = (await start(web, own)).json()
    again = (await start(web, own, input="another")).json()
    await until(lambda: stored(web, "select count(*) from reviews where state = 'open'", 2))
    [(name,)] = await web.path.rows("select 'A' || id from reviews where task_id = $1", made["id"])

    async def answer(headers: Headers, task: str, question: str = name) -> int:
        body = {"question": question, "answer": "Only on Monday"}
        return (await web.client.post(f"/api/tasks/{task}/answer", json=body, headers=headers)).status_code

    assert await answer(other, made["id"]) == 409
    assert await answer(own, again["id"]) == 409
    assert await answer(own, made["id"], "A999") == 409
    await web.path.rows("update reviews set tool = 'write_file', kind = 'approval' where task_id = $1", made["id"])
    assert await answer(own, made["id"]) == 409, "a call is for people"
    await web.path.rows(
        "update reviews set tool = 'request_human_review', kind = 'review' where task_id = $1", made["id"]
    )
    web.model.says("done")
    assert await answer(own, made["id"]) == 200
    assert await answer(own, made["id"]) == 409
    await eventually(lambda: any("Only on Monday" in str(prompt.messages) for prompt in web.model.prompts))
    heard = await web.path.rows("select text, label from messages where text like '%Only on Monday%'")
    assert [label for _, label in heard] == [2]
    assert '"label"' not in heard[0][0]


async def test_agents_are_models(web: Web) -> None:
    agent(web, "scout", "tools: [read_file]")
    agent(web, "asleep", "is_active: false")
    async with AsyncOpenAI(base_url=f"{web.url}/v1", api_key=LOCAL_TOKEN) as client:
        assert [model.id async for model in client.models.list()] == ["default", "scout"]
        asked = await client.chat.completions.create(model="scout", messages=[{"role": "user", "content": "hi"}])
    assert (asked.choices[0].message.content, asked.model) == ("re: hi", "scout")
    prompt = web.model.prompts[-1]
    assert "You are the scout." in prompt.messages[0].text
    assert {tool.name for tool in prompt.tools} == {"read_file", "todo"}
    plain = await bearer(web, "chat")
    body = {"model": "scout", "messages": [{"role": "user", "content": "hi"}]}
    answer = await web.client.post("/v1/chat/completions", json=body, headers=plain)
    assert (answer.status_code, web.model.prompts[-1].tools) == (200, ())
    refused = await web.client.post("/v1/chat/completions", json={**body, "model": "asleep"}, headers=plain)
    assert refused.status_code == 404


@pytest.mark.parametrize("body", [{"input": ""}, {"budget": 0}, {"more": 1}, {"input": "x" * 50_001}])
async def test_what_is_no_task_is_refused(web: Web, body: dict[str, object]) -> None:
    assert (await start(web, **body)).status_code == 400


async def test_a_question_is_answered_on_the_page_with_a_comment_that_its_task_gets(web: Web) -> None:
    web.model.says(ASK)
    made = (await start(web)).json()
    follow = asyncio.create_task(trace(web, master=made["id"]))
    await eventually(lambda: bool(web.model.prompts))
    async with web.sign_in() as browser:
        async with asyncio.timeout(60):
            while True:
                if "Your answer" in (shown := (await browser.get("/inbox")).text):
                    break
                await asyncio.sleep(0.05)
        assert "Allow more calls like this" not in shown
        web.model.says("done")
        answer = await browser.post("/approvals/A1/approve", data={"comment": "only today"})
    assert answer.status_code == 204
    reviews = [event for event in await follow if event.get("kind") == "review"]
    assert [(step["name"], step["ok"]) for step in reviews] == [("A1", None), ("A1", True)]
    assert "only today" in str(web.model.prompts[-1].messages[-1])
    [review] = (await web.client.get("/api/reviews", headers=BEARER)).json()
    assert (review["kind"], review["task_id"], review["decided_by"]) == ("review", made["id"], "web")
    assert review["response"] == {"approved": True, "comment": "only today"}
