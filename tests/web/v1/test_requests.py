import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing

import openai
import pytest

from gateway.domain.conversation.model import ModelsExhausted
from gateway.web.v1 import routes, serving
from tests.fakes.eventually import eventually
from tests.web.conftest import BEARER, Running, Web
from tests.web.scripted import Wait
from tests.web.test_v1 import user
from tests.web.v1.conftest import program

CHAT = "/v1/chat/completions"


def body(text: str, **more: object) -> dict[str, object]:
    return {"model": "default", "messages": [user(text)], **more}


async def test_every_response_has_a_request_id_of_its_own(web: Web):
    answers = [await web.client.get("/v1/models", headers=BEARER), await web.client.post(CHAT, json={})]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 2
    assert "x-request-id" not in (await web.client.get("/health")).headers


async def test_open_webui_names_its_chat_and_a_user_names_nothing(web: Web):
    chat = {**BEARER, "X-OpenWebUI-Chat-Id": "0f3c"}
    named = [await web.client.post(CHAT, json=body(text), headers=chat) for text in ("one", "two")]
    nameless = [await web.client.post(CHAT, json=body(text, user="ada"), headers=BEARER) for text in ("one", "two")]
    assert [answer.headers["x-session"] for answer in named] == ["0f3c", "0f3c"]
    assert len({answer.headers["x-session"] for answer in nameless}) == 2


OPEN_WEBUI = """### Task:
{task}
### Guidelines:
- Be clear.
### Output:
JSON format: {form}
### Chat History:
<chat_history>
USER: How do I repot a large monstera without breaking it?
ASSISTANT: Gently.
</chat_history>"""


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        (
            OPEN_WEBUI.format(task="Generate a concise, 3-5 word title with an emoji.", form='{ "title": "…" }'),
            {"title": "How do I repot a large monstera without…"},
        ),
        (OPEN_WEBUI.format(task="Generate 1-3 broad tags.", form='{ "tags": [] }'), {"tags": ["General"]}),
        (OPEN_WEBUI.format(task="Suggest 3-5 relevant follow-up questions.", form="{}"), {"follow_ups": []}),
        (
            "Provide a concise, 5-word-or-less title for the conversation, using its same language.\n\n"
            "Conversation:\nUser: Plan Rome\nAI: Yes.",
            "Plan Rome",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_titles_tags_and_follow_ups_make_no_turn(web: Web, prompt: str, told: object, stream: bool):
    async with program(web) as client:
        answer = await client.chat.completions.create(model="default", messages=[user(prompt)], stream=stream)
        if stream:
            said = "".join([chunk.choices[0].delta.content or "" async for chunk in answer])
        else:
            said = answer.choices[0].message.content
    assert (said if isinstance(told, str) else json.loads(said)) == told
    assert web.model.prompts == []
    assert await web.path.rows("select count(*) from sessions where id in (select session_id from messages)") == [(0,)]


async def test_a_task_that_is_a_question_is_a_turn(web: Web):
    text = "### Task:\nRespond to the user query using the provided context.\n<context>x</context>"
    await web.client.post(CHAT, json=body(text), headers=BEARER)
    assert len(web.model.prompts) == 1


async def test_the_retry_of_a_client_is_the_same_turn_and_another_request_is_not(web: Web):
    def retry(count: int) -> Mapping[str, str]:
        return {**BEARER, "x-stainless-retry-count": str(count)}

    first = await web.client.post(CHAT, json=body("pay"), headers=retry(0))
    again = await web.client.post(CHAT, json=body("pay"), headers=retry(1))
    other = await web.client.post(CHAT, json=body("pay"), headers=retry(0))
    unseen = await web.client.post(CHAT, json=body("never sent"), headers=retry(2))
    assert again.json()["id"] == first.json()["id"] != other.json()["id"]
    assert again.headers["x-session"] == first.headers["x-session"]
    assert unseen.status_code == 200
    assert len(web.model.prompts) == 3


async def test_whitespace_keeps_a_slow_answer_alive(web: Web, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "PATIENCE_SECONDS", 0.05)
    middle = Wait()
    web.model.says("at ", middle, "last")
    streamed = web.client.stream("POST", CHAT, json=body("go"), headers=BEARER)
    async with streamed as answer, aclosing(answer.aiter_raw()) as pieces:
        assert await anext(pieces) == b" "
        middle.over.set()
        rest = b"".join([piece async for piece in pieces])
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert json.loads(rest)["choices"][0]["message"]["content"] == "at last"


async def test_what_fails_after_the_whitespace_stands_in_the_body(web: Web, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "PATIENCE_SECONDS", 0.05)
    middle = Wait()
    web.model.says("half", middle, ModelsExhausted("a: no key.", ()))
    asked = asyncio.create_task(web.client.post(CHAT, json=body("go"), headers=BEARER))
    await middle.reached.wait()
    await asyncio.sleep(0.2)
    middle.over.set()
    answer = await asked
    assert (answer.status_code, answer.json()["error"]["code"]) == (200, "turn_failed")


async def test_a_client_that_leaves_a_slow_answer_leaves_nothing_behind(web: Web, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "PATIENCE_SECONDS", 0.05)
    middle = Wait()
    web.model.says("half", middle, " and half")
    key = {**BEARER, "Idempotency-Key": "left"}
    streamed = web.client.stream("POST", CHAT, json=body("go"), headers=key)
    async with streamed as answer, aclosing(answer.aiter_raw()) as pieces:
        await anext(pieces)
    middle.over.set()
    again = await web.client.post(CHAT, json=body("go"), headers=key)
    assert again.json()["choices"][0]["message"]["content"] == "half and half"
    await eventually(lambda: not any("whole" in str(task.get_coro()) for task in asyncio.all_tasks()))


async def test_names_that_are_allowed_are_answered_and_others_are_not(running: Running):
    started = await running.start(allowed_hosts=lambda: ("host.docker.internal",))
    for host, status in (("host.docker.internal:8787", 200), ("evil.example", 421)):
        answer = await started.web.client.get("/v1/models", headers={**BEARER, "Host": host})
        assert answer.status_code == status
    await started.stop()


async def test_an_embedding_without_a_model_is_no_matter_of_repeating(web: Web):
    answer = await web.client.post("/v1/embeddings", json={"input": "a", "frob": 1}, headers=BEARER)
    assert (answer.status_code, answer.json()["error"]["code"]) == (424, "no_embedder")


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        ([9906, 1917], 424, "No embedding model"),
        ([[9906, 1917], [9906]], 424, "No embedding model"),
        (["x"] * 2_048, 424, "No embedding model"),
        ([[9906, 1917] * 400] * 1_000, 424, "No embedding model"),
        (["x"] * 2_049, 400, "input"),
        ([[9906, 200_000_000]], 400, "check_embedding_ctx_length=False"),
        ([[-1]], 400, "input"),
    ],
)
async def test_embeddings_take_tokens_and_as_many_texts_as_at_openai(web: Web, sent: object, status: int, told: str):
    answer = await web.client.post("/v1/embeddings", json={"input": sent}, headers=BEARER, timeout=60)
    assert answer.status_code == status
    assert told in answer.json()["error"]["message"]


def test_tokens_are_those_of_cl100k() -> None:
    assert routes._texts([(9906, 1917, 0), "x", (57668, 53901)]) == ["Hello world!", "x", "你好"]


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FORMATS = {
    "json_object": {"type": "json_object"},
    "json_schema": {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}},
}


@pytest.mark.parametrize(
    ("kind", "said", "reason"),
    [
        ("json_object", '{"any": 1}', None),
        ("json_object", "[1]", "not a JSON object"),
        ("json_object", "Sure!", "not valid JSON"),
        ("json_schema", '{"city": "Rome"}', None),
        ("json_schema", '{"city": 7}', r"\$\.city"),
        ("json_schema", '{"city": "Rome", "more": 1}', "more"),
    ],
)
async def test_a_json_answer_is_asked_for_and_checked(web: Web, kind: str, said: str, reason: str | None):
    web.model.says(said)
    async with program(web) as client:
        asked = client.chat.completions.create(
            model="default", messages=[user("where?")], response_format=FORMATS[kind]
        )
        if reason is None:
            assert (await asked).choices[0].message.content == said
        else:
            with pytest.raises(openai.APIStatusError, match=reason) as raised:
                await asked
            assert (raised.value.status_code, raised.value.code) == (424, "response_format_missed")
    assert web.model.prompts[0].answer_format == FORMATS[kind]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"properties": 7},
    ],
)
async def test_what_is_no_schema_is_refused(web: Web, schema: object):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = await web.client.post(CHAT, json=body("hi", response_format=form), headers=BEARER)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format.json_schema.schema")


@pytest.mark.parametrize(
    ("schema", "status"),
    [
        ({"type": "string", "pattern": "^(a+)+$"}, 200),
        ({"$ref": "http://127.0.0.1:1/secret.json"}, 424),
        ({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}] * 2}}, "$ref": "#/$defs/a"}, 424),
    ],
)
async def test_a_schema_can_neither_fetch_nor_hang(web: Web, schema: object, status: int):
    web.model.says(json.dumps("a" * 40 + "!"))
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = await web.client.post(CHAT, json=body("hi", response_format=form), headers=BEARER)
    assert answer.status_code == status


async def test_an_old_completion_is_a_turn(web: Web):
    async with program(web) as client:
        whole = await client.completions.create(model="default", prompt="Say hi", max_tokens=5, stop=["\n"])
        stream = await client.completions.create(model="default", prompt=["Say hi"], stream=True)
        pieces = [chunk.choices[0].text async for chunk in stream]
        with pytest.raises(openai.BadRequestError):
            await client.completions.create(model="default", prompt=["one", "two"])
    assert (whole.object, whole.choices[0].text, whole.choices[0].finish_reason) == (
        "text_completion",
        "re: Say hi",
        "stop",
    )
    assert "".join(pieces) == "re: Say hi"
