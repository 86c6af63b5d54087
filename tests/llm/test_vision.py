"""Pictures for models with eyes, words for the others."""

import json

import pytest

from gateway.domain.conversation.model import (
    AssistantMessage,
    Image,
    ModelsExhausted,
    Prompt,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from gateway.llm.prices import Prices, estimate_prompt
from tests.fakes.openai_server import FakeModels, Rule
from tests.llm.chain import Chain, client_for, collect, last_reply

SEEING, BLIND, UNKNOWN = "openai/gpt-4o", "azure/o3-mini", "vllm/mine"
LOOK = Prompt((UserMessage("what is it?", (Image("image/jpeg", b"x"),)),))
WORDS = Prompt((UserMessage("what is it?"),))


def shown(chain: Chain, model: str) -> list[Prompt]:
    return [prompt for _, prompt in chain.providers.by_model[model].requests]


async def ask(chain: Chain, prompt: Prompt = LOOK) -> str:
    return last_reply(await collect(chain.client.stream(prompt))).text


async def test_a_model_that_is_known_to_see_is_shown_them() -> None:
    assert Prices().of(SEEING).vision
    chain = Chain({SEEING: ["a cat"]})
    assert await ask(chain) == "a cat"
    assert shown(chain, SEEING) == [LOOK]


async def test_a_model_that_is_known_to_be_blind_is_shown_the_words_alone() -> None:
    chain = Chain({BLIND: ["a cat, you say"]})
    assert await ask(chain) == "a cat, you say"
    assert shown(chain, BLIND) == [WORDS]


async def test_a_blind_model_is_told_that_it_gets_no_picture_of_a_page() -> None:
    read = AssistantMessage("", (ToolCall("one", "read_file", "{}"),))
    chain = Chain({BLIND: ["a page"]})
    await ask(chain, Prompt((UserMessage("look"), read, ToolMessage("one", "text", (Image("image/jpeg", b"x"),)))))
    [prompt] = shown(chain, BLIND)
    assert prompt.messages[-1] == ToolMessage("one", "text\n(You get no pictures, only text.)")


async def test_one_that_refuses_them_gets_words_from_then_on_and_is_asked_again_at_once() -> None:
    async with FakeModels(Rule(status=500, message="image input is not supported: no mmproj", times=1)) as models:
        client = await client_for(models.base_url, UNKNOWN)
        replies = [last_reply(await collect(client.stream(LOOK))) for _ in range(2)]
        await client.close()
    assert [(reply.text, reply.failed) for reply in replies] == [("ok", ()), ("ok", ())]
    assert ["image_url" in json.dumps(body) for body in models.bodies] == [True, False, False]


@pytest.mark.parametrize(
    "words",
    [
        "You uploaded an unsupported image. Please make sure your image is valid.",
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
        "Could not process image",
        "Unable to process input image. Please retry",
        "cannot identify image file <_io.BytesIO object>",
        "At most 1 image(s) may be provided in one request.",
    ],
)
async def test_a_faulty_picture_is_left_out_of_this_request_alone_and_the_model_knows(words: str) -> None:
    async with FakeModels(Rule(status=400, message=words, times=1)) as models:
        client = await client_for(models.base_url, UNKNOWN)
        replies = [last_reply(await collect(client.stream(LOOK))) for _ in range(2)]
        await client.close()
    assert [reply.text for reply in replies] == ["ok", "ok"]
    assert ["image_url" in json.dumps(body) for body in models.bodies] == [True, False, True]
    assert "was refused as too large or damaged" in json.dumps(models.bodies[1])


async def test_a_refusal_of_something_else_is_no_reason_to_hide_them() -> None:
    async with FakeModels(Rule(status=400, message="tools are not supported")) as models:
        client = await client_for(models.base_url, UNKNOWN)
        with pytest.raises(ModelsExhausted):
            await collect(client.stream(LOOK))
        await client.close()
    assert ["image_url" in json.dumps(body) for body in models.bodies] == [True]


def test_a_picture_costs_tokens() -> None:
    assert estimate_prompt(LOOK) == estimate_prompt(WORDS) + 1_100
