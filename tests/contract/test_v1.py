"""The shapes of `/v1` byte for byte as clients parse them: what is here may only grow."""

import json
from typing import Any

import pytest

from gateway.domain.conversation.model import ModelsExhausted
from tests.web.conftest import BEARER, Web

CHAT = "/v1/chat/completions"


def body(*said: str, **more: object) -> dict[str, object]:
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(said)]
    return {"model": "default", "messages": messages, **more}


def chunks(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


async def test_an_answer_in_one_piece(web: Web):
    answer = await web.client.post(CHAT, json=body("hello"), headers=BEARER)
    whole = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert whole["id"].startswith("chatcmpl-")
    assert {name: whole[name] for name in ("object", "model", "system_fingerprint", "usage")} == {
        "object": "chat.completion",
        "model": "default",
        "system_fingerprint": None,
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }
    assert whole["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "re: hello", "refusal": None, "annotations": []},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]


async def test_an_answer_in_pieces(web: Web):
    web.model.says("one ", "two")
    options = {"stream": True, "stream_options": {"include_usage": True}}
    answer = await web.client.post(CHAT, json=body("hello", **options), headers=BEARER)
    first, *middle, last, usage = chunks(answer.text)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in middle) == "one two"
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 18)
    assert {chunk["object"] for chunk in (first, *middle, last, usage)} == {"chat.completion.chunk"}


@pytest.mark.parametrize(
    ("request_", "status", "code", "param"),
    [
        (b"no json", 400, "invalid_value", None),
        (b"[]", 400, "invalid_value", None),
        (json.dumps(body("hi", model="gpt-9")).encode(), 404, "model_not_found", "model"),
        (json.dumps(body("hi", stop=7)).encode(), 400, "invalid_value", "stop"),
        (json.dumps(body("hi", n=2)).encode(), 400, "unsupported_parameter", "n"),
    ],
)
async def test_an_error(web: Web, request_: bytes, status: int, code: str, param: str | None):
    answer = await web.client.post(CHAT, content=request_, headers=BEARER)
    error = answer.json()["error"]
    assert answer.status_code == status
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)
    assert set(error) == {"message", "type", "param", "code"}


async def test_without_a_token_nothing_is_said(web: Web):
    answer = await web.client.post(CHAT, json=body("hi"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_failed_turn_says_why_and_asks_for_no_retry(web: Web):
    web.model.says(ModelsExhausted("a: no key. Set one.", ()))
    answer = await web.client.post(CHAT, json=body("hi"), headers=BEARER)
    assert answer.json()["error"]["code"] == "turn_failed"
    assert "no key" in answer.json()["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["x-session"]


async def test_models_and_one_of_them(web: Web):
    listed = (await web.client.get("/v1/models", headers=BEARER)).json()
    [entry] = listed["data"]
    assert listed["object"] == "list"
    assert (entry["id"], entry["object"], entry["owned_by"]) == ("default", "model", "supaclaw")
    one = await web.client.get("/v1/models/default", headers=BEARER)
    assert set(one.json()) == {"id", "object", "created", "owned_by"}
