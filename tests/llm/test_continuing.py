"""An answer that was cut by the limit of its length."""

import pytest

from gateway.domain.conversation.model import AssistantMessage, ModelsExhausted, TextDelta, ToolCall, UserMessage
from gateway.llm.continuing import GO_ON
from gateway.llm.errors import ErrorKind, ModelError
from tests.llm.chain import HELLO, Chain, last_reply
from tests.llm.scripted import Say

FIRST = Say(("The first half",), finish="length")


def written(events: list[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_the_rest_is_asked_for_once() -> None:
    chain = Chain(a=[FIRST, " and the rest."])
    events = await chain.events()
    assert last_reply(events).text == written([*events]) == "The first half and the rest."
    [_, (_, prompt)] = chain.providers.by_model["a"].requests
    assert prompt.messages == (*HELLO.messages, AssistantMessage("The first half"), UserMessage(GO_ON))


async def test_what_is_still_cut_says_so() -> None:
    text = (await Chain(a=[FIRST, Say((" goes on",), finish="length")]).reply()).text
    assert text.startswith("The first half goes on\n\n(The answer ended here at its limit of 4,096 tokens;")


async def test_without_the_rest_the_first_half_is_said_to_be_cut() -> None:
    text = (await Chain(a=[FIRST, ModelError(ErrorKind.SERVER, "gone")]).reply()).text
    assert text.startswith("The first half\n\n(The answer ended here")


async def test_a_call_of_a_cut_answer_is_not_made() -> None:
    call = ToolCall("1", "write_file", '{"content": "half"}')
    with pytest.raises(ModelsExhausted, match="max_output_tokens") as failed:
        await Chain(a=[Say(calls=(call,), finish="length")]).reply()
    assert "write_file" not in str(failed.value)
