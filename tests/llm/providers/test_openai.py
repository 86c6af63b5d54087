"""The OpenAI protocol against a real HTTP server."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from pydantic import SecretStr

from gateway.domain.conversation.model import (
    AssistantMessage,
    Image,
    ModelsExhausted,
    Prompt,
    Restarted,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.domain.settings import CallParams
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import Provider, ProviderEvent, ProviderReply
from gateway.llm.providers.openai import OpenAIProvider, build, with_path
from gateway.llm.vendors import Endpoint, Vendor, vendor
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.llm.chain import HELLO, FakeClock, client_for, collect, last_reply

PICTURE = Image("image/png", b"pixels")
JSON = {"Content-Type": "application/json"}
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}}, Label.OWNER)


@pytest.fixture
async def models() -> AsyncIterator[FakeModels]:
    async with FakeModels() as server:
        yield server


@pytest.fixture
async def provider(models: FakeModels) -> AsyncIterator[Provider]:
    built = build(Endpoint(vendor("openai"), SecretStr("sk-test"), models.base_url))
    yield built
    await built.close()


async def ask(provider: Provider, prompt: Prompt = HELLO, params: CallParams | None = None) -> list[ProviderEvent]:
    return [event async for event in provider.stream("openai/gpt-x", prompt, params or CallParams())]


async def answer(provider: Provider, prompt: Prompt = HELLO, params: CallParams | None = None) -> ProviderReply:
    reply = (await ask(provider, prompt, params))[-1]
    assert isinstance(reply, ProviderReply)
    return reply


async def failure(provider: Provider) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(provider)
    return caught.value


async def test_the_answer_arrives_in_pieces_with_its_usage(models: FakeModels, provider: Provider) -> None:
    usage = {"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 30}}
    models.rules = [Rule(text="one two three four five", usage=usage)]
    models.chunk_ms = 1
    events = await ask(provider)
    assert sum(isinstance(event, TextDelta) for event in events) > 1
    assert events[-1] == ProviderReply("one two three four five", (), Usage(50, 7, 30), "stop")


async def test_the_request_carries_prompt_tools_and_sampling(models: FakeModels, provider: Provider) -> None:
    call = ToolCall("call_1", "look", '{"at": "sky"}')
    messages = (
        SystemMessage("be kind"),
        UserMessage("hi"),
        AssistantMessage("", (call,)),
        ToolMessage("call_1", "blue"),
    )
    await ask(provider, Prompt(messages, (LOOK,)), CallParams(temperature=None, top_p=0.5, max_output_tokens=99))
    [asked] = models.asked
    assert asked.headers["Authorization"] == "Bearer sk-test"
    assert asked.body == {
        "model": "gpt-x",
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "blue"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Looks.", "parameters": LOOK.parameters},
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "top_p": 0.5,
        "max_tokens": 99,
    }


async def test_calls_in_pieces_and_side_by_side_are_put_together(models: FakeModels, provider: Provider) -> None:
    models.rules = [Rule(tool_calls=(Call("look", {"at": "sky and sea"}, "c1"), Call("wait", {"seconds": 30}, "c2")))]
    reply = await answer(provider, Prompt((UserMessage("go"),), (LOOK,)))
    assert [(call.id, call.name, json.loads(call.arguments)) for call in reply.calls] == [
        ("c1", "look", {"at": "sky and sea"}),
        ("c2", "wait", {"seconds": 30}),
    ]
    assert reply.finish == "tool_calls"


async def test_an_answer_in_one_piece_is_read_too(models: FakeModels, provider: Provider) -> None:
    call = Call("look", {"at": "sky"}, "c1")
    models.rules = [Rule(text="Looking.", tool_calls=(call,), times=1, whole=True), Rule(text="Blue.", whole=True)]
    reply = await answer(provider, Prompt((UserMessage("go"),), (LOOK,)))
    assert (reply.text, reply.calls) == ("Looking.", (ToolCall("c1", "look", '{"at": "sky"}'),))
    events = await ask(provider)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Blue."]
    assert isinstance(events[-1], ProviderReply)
    assert (events[-1].finish, events[-1].usage is not None) == ("stop", True)


@pytest.mark.parametrize("rule", [Rule(plain_error="upstream failed"), Rule(raw="nonsense", headers=JSON)])
async def test_what_is_no_answer_though_its_status_says_so_is_an_error(
    models: FakeModels, provider: Provider, rule: Rule
) -> None:
    models.rules = [rule]
    assert (await failure(provider)).kind is ErrorKind.SERVER


async def test_a_connection_is_used_again(models: FakeModels, provider: Provider) -> None:
    for _ in range(3):
        await answer(provider)
    assert (models.count, len(models.clients)) == (3, 1)


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (Rule(status=429, headers={"Retry-After": "17"}), ErrorKind.RATE_LIMIT),
        (Rule(status=401, message="Incorrect API key"), ErrorKind.AUTH),
        (Rule(status=400, code="context_length_exceeded"), ErrorKind.CONTEXT_LENGTH),
        (Rule(status=404, code="model_not_found"), ErrorKind.UNKNOWN_MODEL),
        (Rule(status=429, code="insufficient_quota"), ErrorKind.NO_CREDIT),
        (Rule(status=500), ErrorKind.SERVER),
        (Rule(status=503), ErrorKind.OVERLOADED),
        (Rule(text="a b c d e", cut=2), ErrorKind.NETWORK),
        (Rule(raw="data: {not json\n\n"), ErrorKind.SERVER),
        (Rule(raw='data: {"error": {"code": 429, "message": "slow"}}\n\n'), ErrorKind.RATE_LIMIT),
        (Rule(raw='data: {"error": {"type": "overloaded_error", "message": "busy"}}\n\n'), ErrorKind.OVERLOADED),
        (Rule(raw='data: {"error": "something"}\n\n'), ErrorKind.SERVER),
        (Rule(raw='data: {"choices": [{"delta": {"content": "half"}}]}\n\n'), ErrorKind.NETWORK),
    ],
)
async def test_failures_are_told_apart(models: FakeModels, provider: Provider, rule: Rule, kind: ErrorKind) -> None:
    models.rules = [rule]
    error = await failure(provider)
    assert error.kind is kind
    assert error.retry_after == (17 if rule.headers else None)
    assert models.count == 1


async def test_an_error_in_words_only_is_passed_on(models: FakeModels, provider: Provider) -> None:
    models.rules = [Rule(status=404, plain_error='model "x" not found')]
    assert (await failure(provider)).message == 'model "x" not found'
    models.rules = [Rule(status=502, plain_error="")]
    assert "502" in (await failure(provider)).message


async def test_a_stream_may_end_without_a_last_word(models: FakeModels, provider: Provider) -> None:
    models.rules = [Rule(raw='data: {"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}\n\n')]
    assert (await answer(provider)).text == "x"


async def test_a_server_that_says_done_and_stays_is_not_waited_for(models: FakeModels, provider: Provider) -> None:
    models.rules = [Rule(raw='data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n', stall=0)]
    assert (await answer(provider)).text == "x"


async def test_nobody_listening_is_a_network_error() -> None:
    async with FakeModels() as gone:
        address = gone.base_url
    provider = build(Endpoint(vendor("openai"), SecretStr("k"), address))
    error = await failure(provider)
    assert (error.kind, error.status) == (ErrorKind.NETWORK, None)
    assert "127.0.0.1" in error.message
    await provider.close()


async def test_a_refused_parameter_is_left_out_from_then_on(models: FakeModels, provider: Provider) -> None:
    models.rules = [
        Rule(status=400, code="unsupported_value", param="temperature", times=1),
        Rule(status=400, code="unsupported_parameter", param="max_tokens", times=1),
    ]
    await answer(provider)
    await answer(provider)
    fields = [sorted(body.keys() & {"temperature", "max_tokens", "max_completion_tokens"}) for body in models.bodies]
    assert fields == [["max_tokens", "temperature"], ["max_tokens"], *[["max_completion_tokens"]] * 2]


async def test_a_parameter_that_was_not_sent_cannot_be_left_out(models: FakeModels, provider: Provider) -> None:
    models.rules = [Rule(status=400, code="unsupported_parameter", param="messages")]
    assert (await failure(provider)).kind is ErrorKind.BAD_REQUEST
    assert models.count == 1


async def test_openai_itself_is_given_the_limit_under_its_newer_name(models: FakeModels) -> None:
    entry = Vendor("openai", "OpenAI", base_url=models.base_url, limit_field="max_completion_tokens")
    provider = build(Endpoint(entry))
    await answer(provider)
    assert models.bodies[0]["max_completion_tokens"] == 4096
    await provider.close()


async def test_without_a_key_nothing_is_sent() -> None:
    provider = build(Endpoint(vendor("openai")))
    assert (await failure(provider)).kind is ErrorKind.AUTH
    await provider.close()


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("http://127.0.0.1:11434/", "http://127.0.0.1:11434/v1"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1"),
    ],
)
def test_a_bare_host_gets_the_usual_path(given: str, used: str) -> None:
    assert with_path(given) == used


async def test_closing_the_stream_closes_the_connection(models: FakeModels) -> None:
    models.rules = [Rule(text="one two three four five", stall=2)]
    client = await client_for(models.base_url, "openai/x")
    async with aclosing(client.stream(HELLO)) as events:
        assert isinstance(await anext(events), TextDelta)
    async with asyncio.timeout(5):
        await models.dropped.wait()
    await client.close()


async def test_cancelling_a_waiting_call_closes_the_connection(models: FakeModels) -> None:
    models.rules = [Rule(hang=True)]
    client = await client_for(models.base_url, "openai/x")
    task = asyncio.create_task(collect(client.stream(HELLO)))
    await models.started.wait()
    task.cancel()
    async with asyncio.timeout(5):
        await models.dropped.wait()
    assert models.count == 1
    await client.close()


async def test_a_whole_chain_over_http(models: FakeModels) -> None:
    models.rules = [
        Rule(status=429, times=1),
        Rule(status=500, times=2),
        Rule(text="half an answer that stops here", cut=2, times=1),
        Rule(text="the whole answer"),
    ]
    clock = FakeClock()
    client = await client_for(models.base_url, "openai/first", "groq/second", clock=clock)
    events = await collect(client.stream(HELLO))
    reply = last_reply(events)
    assert any(isinstance(event, Restarted) for event in events)
    assert (reply.text, reply.model, clock.slept) == ("the whole answer", "groq/second", [5, 10, 10])
    assert [attempt.error for attempt in reply.failed] == ["rate_limit", "server", "server", "network"]
    assert [asked.model for asked in models.asked] == ["first", *["second"] * 4]
    await client.close()


async def test_a_server_that_hangs_is_given_up(models: FakeModels) -> None:
    models.rules = [Rule(hang=True, times=1), Rule(text="awake")]
    client = await client_for(models.base_url, "openai/x", silence=0.2)
    reply = last_reply(await collect(client.stream(HELLO)))
    assert (reply.text, reply.failed[0].error) == ("awake", "silence")
    await client.close()


async def test_the_key_is_kept_out_of_errors(models: FakeModels) -> None:
    models.rules = [Rule(status=401, message="Incorrect API key provided: sk-test-secret-1234")]
    client = await client_for(models.base_url, "openai/x")
    with pytest.raises(ModelsExhausted) as caught:
        await collect(client.stream(HELLO))
    assert "secret" not in str(caught.value)
    assert "https://platform.openai.com/api-keys" in str(caught.value)
    await client.close()


class TestHearing:
    async def test_what_is_said_in_a_sound_file_comes_back_as_text(self, models: FakeModels) -> None:
        models.rules = [Rule(match="voice.ogg", text="Buy green tea.")]
        client = await client_for(models.base_url, "openai/gpt-x")
        reply = await client.transcribe(["openai/whisper-1"], "voice.ogg", "audio/ogg", b"OggS" * 5_000)
        assert (reply.text, reply.model, reply.usage.cost_usd) == (
            "Buy green tea.",
            "openai/whisper-1",
            pytest.approx(10 * 1e-4),
        )
        assert [(asked.path, asked.body) for asked in models.asked] == [
            ("/v1/audio/transcriptions", {"model": "whisper-1", "audio": "OggS" * 5_000})
        ]
        await client.close()

    async def test_the_most_that_sounds_may_cost_is_known_before(self, models: FakeModels) -> None:
        client = await client_for(models.base_url, "openai/gpt-x")
        assert client.highest_heard(["own/whisper", "openai/whisper-1"], 20_000).usd == pytest.approx(10 * 1e-4)
        assert client.highest_spoken("openai/tts-1", "x" * 1_000).usd == pytest.approx(0.015)
        assert client.highest_spoken("own/kokoro", "Good morning").tokens > 0
        await client.close()

    async def test_a_refusal_is_told_without_the_key(self, models: FakeModels) -> None:
        models.rules = [Rule(status=401, code="invalid_api_key", message="bad key sk-test-secret-1234")]
        client = await client_for(models.base_url, "openai/gpt-x")
        with pytest.raises(ModelError) as caught:
            await client.transcribe(["openai/whisper-1"], "voice.ogg", "audio/ogg", b"OggS")
        assert (caught.value.kind, str(caught.value)) == (ErrorKind.AUTH, "bad key ***")
        await client.close()

    @pytest.mark.parametrize(
        ("status", "asked"),
        [(500, ["a", "b", "a"]), (429, ["a", "b", "a"]), (401, ["a", "b", "b"]), (400, ["a", "b", "b"])],
    )
    async def test_the_next_model_is_asked_and_what_may_pass_is_tried_again(
        self, models: FakeModels, status: int, asked: list[str]
    ) -> None:
        models.rules = [Rule(status=status, times=1), Rule(status=500, times=1), Rule(text="tea")]
        client = await client_for(models.base_url, "openai/gpt-x")
        assert (await client.transcribe(["openai/a", "openai/b"], "x.ogg", "audio/ogg", b"OggS")).text == "tea"
        assert [each.body["model"] for each in models.asked] == asked
        await client.close()

    @pytest.mark.parametrize(
        ("rules", "formats"),
        [([Rule(text="OggS")], ["opus"]), ([Rule(status=400, times=1), Rule(text="ID3")], ["opus", None])],
    )
    async def test_a_text_is_read_aloud_as_opus_or_as_the_service_can(
        self, models: FakeModels, rules: list[Rule], formats: list[str | None]
    ) -> None:
        models.rules, said = rules, (rules[-1].said).encode()
        client = await client_for(models.base_url, "openai/gpt-x")
        sound, usage = await client.speak("openai/tts-1", "alloy", "Buy tea.")
        assert (sound, usage.cost_usd) == (said, pytest.approx(8 * 1.5e-5))
        assert [(each.path, each.body.get("response_format")) for each in models.asked] == [
            ("/v1/audio/speech", format) for format in formats
        ]
        assert models.asked[0].body["voice"] == "alloy"
        await client.close()

    @pytest.mark.thorough
    async def test_a_server_that_is_away_is_told(self) -> None:
        client = await client_for("http://127.0.0.1:9", "openai/gpt-x")
        with pytest.raises(ModelError, match=r"127\.0\.0\.1"):
            await client.transcribe(["openai/whisper-1"], "voice.ogg", "audio/ogg", b"OggS")
        await client.close()

    async def test_without_a_key_nothing_is_sent(self) -> None:
        with pytest.raises(ModelError, match="no API key"):
            await OpenAIProvider(Endpoint(vendor("openai"))).transcribe(
                "openai/whisper-1", "voice.ogg", "audio/ogg", b"OggS"
            )


async def test_a_prompt_in_the_form_of_the_responses_api(models: FakeModels) -> None:
    models.rules = [Rule(raw='data: {"type": "response.completed", "response": {"status": "completed"}}\n\n')]
    called = AssistantMessage("I look.", (ToolCall("call_1", "look", '{"at": "sky"}'),))
    form: dict[str, Json] = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    asked = (SystemMessage("Be kind."), UserMessage("Look", (PICTURE,)), called, ToolMessage("call_1", "blue"))
    prompt = Prompt((*asked, SystemMessage("Be brief.")), (LOOK,), must_call="look", answer_format=form)
    provider = build(Endpoint(vendor("openai"), SecretStr("sk-test"), models.base_url, by_responses=True))
    await ask(provider, prompt, CallParams(thinking="off"))
    await provider.close()
    body = models.bodies[0]
    picture = f"data:image/png;base64,{b64encode(PICTURE.data).decode()}"
    assert body["instructions"] == "Be kind."
    assert body["input"] == [
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": picture}, {"type": "input_text", "text": "Look"}],
        },
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at": "sky"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "blue"},
        {"role": "developer", "content": "Be brief."},
    ]
    tool = {"type": "function", "name": "look", "description": "Looks.", "parameters": LOOK.parameters}
    assert body["tools"] == [{**tool, "strict": False}]
    assert body["tool_choice"] == {"type": "function", "name": "look"}
    assert body["text"] == {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}}
    assert body["reasoning"] == {"effort": "none", "summary": "auto"}
    left = {"messages", "stream_options", "response_format", "reasoning_effort", "max_tokens"}
    assert not left & body.keys()
