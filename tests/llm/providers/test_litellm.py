"""litellm, against fake Anthropic and OpenAI endpoints."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib import import_module

import pytest
import pytest_asyncio
from pydantic import SecretStr

from gateway.domain.conversation.model import (
    AssistantMessage,
    Prompt,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from gateway.domain.principals import Label
from gateway.domain.settings import CallParams
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import Provider, ProviderReply
from gateway.llm.providers.litellm import build, cacheable, translate
from gateway.llm.vendors import Endpoint, vendor
from tests.fakes.endless_models import EndlessModels
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.llm.chain import HELLO, client_for, collect, last_reply

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

CLAUDE = "anthropic/claude-sonnet-4-5"
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}}, Label.OWNER)


@pytest_asyncio.fixture(loop_scope="module", scope="module", autouse=True)
async def connections() -> AsyncIterator[None]:
    """litellm keeps connections per event loop; they are closed with the loop."""
    yield
    await import_module("litellm").close_litellm_async_clients()


@pytest_asyncio.fixture(loop_scope="module")
async def models() -> AsyncIterator[FakeModels]:
    async with FakeModels() as server:
        yield server


def claude(address: str) -> Provider:
    return build(Endpoint(vendor("anthropic"), SecretStr("sk-ant-test"), address))


async def answer(provider: Provider, prompt: Prompt = HELLO, model: str = CLAUDE) -> ProviderReply:
    events = [event async for event in provider.stream(model, prompt, CallParams())]
    reply = events[-1]
    assert isinstance(reply, ProviderReply)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == reply.text
    return reply


async def failure(provider: Provider) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await answer(provider)
    return caught.value


async def test_claude_calls_a_tool_and_answers_with_its_result(models: FakeModels) -> None:
    models.rules = [
        Rule(tool_calls=(Call("look", {"at": "sky"}, "toolu_1"),)),
        Rule("", "It is blue.", after_tools=True),
    ]
    provider = claude(models.url)
    question = Prompt((SystemMessage("Be kind."), UserMessage("What colour is the sky?")), (LOOK,))
    asking = await answer(provider, question)
    assert asking.calls == (ToolCall("toolu_1", "look", '{"at": "sky"}'),)
    assert asking.usage is not None
    assert (asking.usage.input_tokens, asking.usage.output_tokens) == (100, 10)
    rest = (AssistantMessage(asking.text, asking.calls), ToolMessage("toolu_1", "blue"))
    assert (await answer(provider, Prompt(question.messages + rest, (LOOK,)))).text == "It is blue."
    first, second = models.asked
    assert first.headers["x-api-key"] == "sk-ant-test"
    assert first.body["tools"][0]["name"] == "look"
    assert "top_p" not in first.body
    assert second.body["messages"][-1]["content"][0]["type"] == "tool_result"


async def test_claude_is_told_what_to_cache(models: FakeModels) -> None:
    await answer(claude(models.url), Prompt((SystemMessage("Be kind."), UserMessage("hello"))))
    body = models.bodies[0]
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}


async def test_only_the_last_system_and_user_messages_are_marked() -> None:
    messages = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user", "assistant")]
    assert ["cache_control" in str(message) for message in cacheable(messages)] == [True, False, False, True, False]


async def test_the_words_about_pictures_are_marked() -> None:
    picture, words = {"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "what is it?"}
    [marked] = cacheable([{"role": "user", "content": [picture, words]}])
    assert marked["content"] == [picture, {**words, "cache_control": {"type": "ephemeral"}}]


async def test_what_is_said_in_a_sound_file_comes_back_as_text(models: FakeModels) -> None:
    models.rules = [Rule(match="voice.ogg", text="Buy green tea.")]
    client = await client_for(models.base_url, "openai/gpt-x", engine="litellm")
    assert (await client.transcribe(["openai/whisper-1"], "voice.ogg", "audio/ogg", b"OggS")).text == "Buy green tea."


async def test_a_refused_sound_file_is_told(models: FakeModels) -> None:
    models.rules = [Rule(match="voice.ogg", status=400, message="not a sound")]
    client = await client_for(models.base_url, "openai/gpt-x", engine="litellm")
    with pytest.raises(ModelError, match="not a sound"):
        await client.transcribe(["openai/whisper-1"], "voice.ogg", "audio/ogg", b"OggS")


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (Rule(status=429, code="rate_limit_error", headers={"retry-after": "17"}), ErrorKind.RATE_LIMIT),
        (Rule(status=529, code="overloaded_error"), ErrorKind.OVERLOADED),
        (Rule(status=401, code="authentication_error", message="invalid x-api-key"), ErrorKind.AUTH),
        (Rule(status=400, message="prompt is too long: 210000 tokens > 200000 maximum"), ErrorKind.CONTEXT_LENGTH),
        (Rule(status=400, message="Your credit balance is too low"), ErrorKind.NO_CREDIT),
        (Rule(status=400, message="tools.0: invalid"), ErrorKind.BAD_REQUEST),
        (Rule(status=500), ErrorKind.SERVER),
    ],
)
async def test_failures_are_told_apart(models: FakeModels, rule: Rule, kind: ErrorKind) -> None:
    models.rules = [rule]
    error = await failure(claude(models.url))
    assert (error.kind, error.message) == (kind, rule.message)
    assert error.retry_after == (17 if rule.headers else None)
    assert models.count == 1


async def test_nobody_listening_is_a_network_error() -> None:
    async with FakeModels() as gone:
        address = gone.url
    assert (await failure(claude(address))).kind is ErrorKind.NETWORK


async def test_a_cut_off_answer_fails(models: FakeModels) -> None:
    models.rules = [Rule(text="one two three four five", cut=2)]
    assert (await failure(claude(models.url))).kind in {ErrorKind.NETWORK, ErrorKind.SERVER}


async def test_an_openai_endpoint_can_be_forced_through_litellm(models: FakeModels) -> None:
    models.rules = [Rule(tool_calls=(Call("look", {"at": "sky"}),), usage={"prompt_tokens": 9, "completion_tokens": 2})]
    client = await client_for(models.base_url, "openai/some-model", engine="litellm")
    reply = last_reply(await collect(client.stream(Prompt((UserMessage("go"),), (LOOK,)))))
    assert [(call.name, call.arguments) for call in reply.calls] == [("look", '{"at": "sky"}')]
    assert (reply.usage.input_tokens, models.bodies[0]["model"]) == (9, "some-model")
    await client.close()


async def test_a_prefix_litellm_does_not_know_is_taken_for_the_openai_protocol(models: FakeModels) -> None:
    client = await client_for(models.base_url, "mybox/llama", engine="litellm")
    assert last_reply(await collect(client.stream(HELLO))).text == "ok"
    assert models.bodies[0]["model"] == "llama"
    await client.close()


async def test_closing_the_stream_closes_the_connection(models: FakeModels) -> None:
    models.rules = [Rule(text="one two three four five", stall=2)]
    provider = claude(models.url)
    async with aclosing(provider.stream(CLAUDE, HELLO, CallParams())) as events:
        while not isinstance(await anext(events), TextDelta):
            pass
    async with asyncio.timeout(5):
        await models.dropped.wait()
    await provider.close()


async def test_the_proxy_is_never_imported(models: FakeModels) -> None:
    provider = claude(models.url)
    await provider.warm()
    await answer(provider, Prompt(HELLO.messages, (LOOK,)))
    assert not [name for name in sys.modules if name.startswith("litellm.proxy.proxy_server")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'litellm.BadRequestError: AnthropicException - {"error": {"message": "no \\"such\\" thing"}}',
            'no "such" thing',
        ),
        ("litellm.APIConnectionError: something else", "something else"),
    ],
)
async def test_the_providers_own_words_are_kept(text: str, message: str) -> None:
    assert translate(ValueError(text)).message == message


@pytest.mark.parametrize("case", ["line", "gzip", "gzip-nested", "deflate"])
@pytest.mark.parametrize("model", [CLAUDE, "openai/gpt-4o"])
async def test_an_answer_past_a_bound_is_a_failed_try(model: str, case: str) -> None:
    async with EndlessModels() as endless:
        provider = build(Endpoint(vendor(model.partition("/")[0]), SecretStr("sk-test"), endless.base_url))
        with pytest.raises(ModelError, match="does not end") as caught:
            await answer(provider, Prompt((UserMessage(f"endless:{case}"),)), model)
    assert caught.value.kind is ErrorKind.ENDLESS


async def test_a_refusal_that_does_not_end_is_read_in_part() -> None:
    async with EndlessModels() as endless:
        with pytest.raises(ModelError) as caught:
            await answer(claude(endless.base_url), Prompt((UserMessage("endless:error-400"),)))
    assert (caught.value.kind, caught.value.status) == (ErrorKind.BAD_REQUEST, 400)


async def test_claude_thinks_beside_its_answer_and_without_when_that_is_refused(models: FakeModels) -> None:
    provider, params = claude(models.url), CallParams(thinking="medium")

    async def ask() -> list[object]:
        events = [event async for event in provider.stream(CLAUDE, HELLO, params)]
        assert isinstance(events[-1], ProviderReply)
        return [models.bodies[-1].get(name) for name in ("thinking", "max_tokens", "temperature")]

    thinking, limit, temperature = await ask()
    assert thinking == {"type": "enabled", "budget_tokens": 2048}
    assert (limit, temperature) == (4096 + 2048, None)
    models.rules = [Rule(status=400, message="thinking: this model does not support extended thinking", times=1)]
    assert await ask() == [None, 4096, 0.7]
    assert await ask() == [None, 4096, 0.7]
