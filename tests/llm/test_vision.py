"""Pictures for models with eyes, words for the others."""

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
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.prices import Prices, estimate_prompt
from gateway.llm.providers.scripted import Say
from tests.llm.chain import Chain, collect, last_reply

SEEING, BLIND, UNKNOWN = "openai/gpt-4o", "azure/o3-mini", "vllm/mine"
LOOK = Prompt((UserMessage("what is it?", (Image("image/jpeg", b"x"),)),))
WORDS = Prompt((UserMessage("what is it?"),))
REFUSALS = [
    ModelError(ErrorKind.BAD_REQUEST, "Invalid content type. image_url is only supported by certain models."),
    ModelError(ErrorKind.UNKNOWN_MODEL, "No endpoints found that support image input"),
    ModelError(ErrorKind.BAD_REQUEST, "messages[1].content must be a string"),
    ModelError(ErrorKind.SERVER, "this model is missing data required for image input"),
    ModelError(ErrorKind.BAD_REQUEST, "mine is not a multimodal model"),
]


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


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_one_nobody_knows_is_asked_again_in_words_and_remembered(refusal: ModelError) -> None:
    chain = Chain({UNKNOWN: [refusal, "a cat, you say", "a dog, you say"]})
    assert await ask(chain) == "a cat, you say"
    assert await ask(chain) == "a dog, you say"
    assert shown(chain, UNKNOWN) == [LOOK, WORDS, WORDS]
    assert chain.clock.slept == []


async def test_a_refusal_of_something_else_is_no_reason_to_hide_them() -> None:
    chain = Chain({UNKNOWN: [ModelError(ErrorKind.BAD_REQUEST, "tools are not supported")] * 9})
    with pytest.raises(ModelsExhausted):
        await ask(chain)
    assert LOOK in shown(chain, UNKNOWN)
    assert WORDS not in shown(chain, UNKNOWN)


async def test_what_was_streamed_already_is_not_asked_again_in_words() -> None:
    broken = Say(("a c",), error=ModelError(ErrorKind.BAD_REQUEST, "the image was lost"))
    chain = Chain({UNKNOWN: [broken], SEEING: ["a cat"]})
    assert await ask(chain) == "a cat"
    assert shown(chain, UNKNOWN) == [LOOK]


def test_a_picture_costs_tokens() -> None:
    assert estimate_prompt(LOOK) == estimate_prompt(WORDS) + 1_100
