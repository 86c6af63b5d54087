"""A client's limits on an answer, in one piece and streamed, over real sockets."""

import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

from tests.web.conftest import BEARER, LOCAL_TOKEN, Web
from tests.web.test_v1 import user

FENCED = ("`", "``json\n", '{"name": ', '"a"}', "\n``", "`\n")


async def both(web: Web, pieces: tuple[str, ...], **more: object) -> list[tuple[str, str | None]]:
    """Text and reason of the end, in one piece and streamed."""
    async with AsyncOpenAI(base_url=f"{web.url}/v1", api_key=LOCAL_TOKEN, max_retries=0) as client:
        create = client.chat.completions.create
        web.model.says(*pieces)
        whole: ChatCompletion = await create(model="default", messages=[user("one")], **more)
        web.model.says(*pieces)
        stream = await create(model="default", messages=[user("two")], stream=True, **more)
        choices = [choice async for chunk in stream for choice in chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    return [(whole.choices[0].message.content or "", whole.choices[0].finish_reason), (text, choices[-1].finish_reason)]


@pytest.mark.parametrize(
    ("pieces", "limits", "text", "finish"),
    [
        (("Thought: x\nObser", "vation: made up"), {"stop": ["\nObservation:"]}, "Thought: x", "stop"),
        (("a END", "b"), {"stop": "END"}, "a ", "stop"),
        (("a EN", "b"), {"stop": ["END", "b!"]}, "a ENb", "stop"),
        (("one two three four five six",), {"max_tokens": 3}, "one two ", "length"),
        (("one two",), {"max_completion_tokens": 30}, "one two", "stop"),
        (("```json {", '"name": "a"} ```'), {"response_format": {"type": "json_object"}}, '{"name": "a"}', "stop"),
        (FENCED, {"response_format": {"type": "json_object"}}, '{"name": "a"}', "stop"),
        (('{"name":', ' "a"}'), {"response_format": {"type": "json_object"}}, '{"name": "a"}', "stop"),
    ],
)
async def test_the_text_ends_where_the_client_wants(
    web: Web, pieces: tuple[str, ...], limits: dict[str, object], text: str, finish: str
) -> None:
    assert await both(web, pieces, **limits) == [(text, finish), (text, finish)]


async def test_a_fence_with_words_around_it_is_not_json(web: Web) -> None:
    web.model.says("Here:\n```json\n{}\n```")
    body = {"model": "default", "messages": [user("hi")], "response_format": {"type": "json_object"}}
    answer = await web.client.post("/v1/chat/completions", json=body, headers=BEARER)
    assert (answer.status_code, answer.json()["error"]["code"]) == (424, "response_format_missed")


async def test_a_response_that_is_cut_is_incomplete(web: Web) -> None:
    web.model.says("one two three four five six")
    body = {"model": "default", "input": "hi", "max_output_tokens": 3}
    answer = (await web.client.post("/v1/responses", json=body, headers=BEARER)).json()
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


async def test_the_beginning_of_an_answer_is_continued(web: Web) -> None:
    web.model.says(" Wash.")
    body = {"model": "default", "messages": [user("go"), {"role": "assistant", "content": "The steps are: 1."}]}
    answer = await web.client.post("/v1/chat/completions", json=body, headers=BEARER)
    [prompt] = web.model.prompts
    assert answer.json()["choices"][0]["message"]["content"].strip() == "Wash."
    assert prompt.messages[-2].text == "The steps are: 1."
    assert "Continue your last message" in prompt.messages[-1].text
