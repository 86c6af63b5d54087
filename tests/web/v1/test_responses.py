import openai
import pytest
from openai import AsyncOpenAI

from gateway.domain.conversation.model import AssistantMessage, ModelsExhausted, ToolCall, ToolMessage, UserMessage
from tests.web.conftest import Web
from tests.web.v1.conftest import program

SHELL = {"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": False}
CALL = ToolCall("call_1", "shell", "{}")


async def ask(client: AsyncOpenAI, said: object, **more: object):
    return await client.responses.create(model="default", input=said, **more)


def texts(web: Web) -> list[str]:
    messages = web.model.prompts[-1].messages[1:]
    return [m.text.partition("] ")[2] or m.text for m in messages if isinstance(m, UserMessage | AssistantMessage)]


async def test_a_text_gets_a_response(web: Web):
    web.model.says("re: hello")
    async with program(web) as client:
        response = await ask(client, "hello", instructions="Be brief.", top_p=0.5, user="ada")
    assert (response.object, response.status, response.output_text) == ("response", "completed", "re: hello")
    assert (response.usage.input_tokens, response.usage.total_tokens) == (11, 18)
    assert any("Be brief." in text for text in texts(web))


async def test_a_stream_tells_every_step(web: Web):
    web.model.says("one ", "two")
    async with program(web) as client:
        events = [event async for event in await ask(client, "count", stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert [kind for kind in kinds if kind != "output_text.delta"] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "one two"
    assert events[-1].response.output_text == "one two"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_is_an_item_and_its_output_goes_on(web: Web, stream: bool):
    web.model.says("Look.", CALL)
    web.model.says("Done.")
    async with program(web) as client:
        if stream:
            events = [event async for event in await ask(client, "go", tools=[SHELL], stream=True)]
            assert "response.function_call_arguments.done" in [event.type for event in events]
            first = events[-1].response
        else:
            first = await ask(client, "go", tools=[SHELL])
        message, call = first.output
        assert (message.type, call.type, call.call_id, call.name) == ("message", "function_call", "call_1", "shell")
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "a.txt"}
        second = await ask(client, [output], previous_response_id=first.id, tools=[SHELL])
    assert second.output_text == "Done."
    assert web.model.prompts[-1].messages[-1] == ToolMessage("call_1", "a.txt")
    assert await web.path.rows("select count(distinct session_id) from messages") == [(1,)]


async def test_the_previous_response_goes_on_and_an_older_one_branches_off(web: Web):
    async with program(web) as client:
        one = await ask(client, "one")
        two = await ask(client, "two", previous_response_id=one.id)
        assert texts(web) == ["one", "re: one", "two"]
        await ask(client, "three", previous_response_id=two.id)
        assert texts(web) == ["one", "re: one", "two", "re: two", "three"]
        await ask(client, "instead", previous_response_id=one.id)
    assert texts(web) == ["one", "re: one", "instead"]
    assert await web.path.rows("select count(distinct session_id) from messages") == [(2,)]


async def test_a_failed_turn_leaves_the_response_before_it_to_go_on_from(web: Web):
    async with program(web) as client:
        one = await ask(client, "one")
        web.model.says(ModelsExhausted("a: no key.", ()))
        with pytest.raises(openai.APIStatusError) as raised:
            await ask(client, "two", previous_response_id=one.id)
        assert raised.value.status_code == 424
        answer = await ask(client, "three", previous_response_id=one.id)
        assert answer.output_text.endswith("three")
    assert await web.path.rows("select count(distinct session_id) from messages") == [(1,)]


async def test_a_failed_stream_says_so(web: Web):
    web.model.says(ModelsExhausted("a: no key.", ()))
    async with program(web) as client:
        *_, last = [event async for event in await ask(client, "hi", stream=True)]
    assert (last.type, last.response.status, last.response.error.code) == ("response.failed", "failed", "turn_failed")


async def test_items_that_were_told_may_be_named_instead_of_sent(web: Web):
    web.model.says("Look.", CALL)
    async with program(web) as client:
        first = await ask(client, "go", tools=[SHELL])
        items = [{"type": "item_reference", "id": item.id} for item in first.output]
        output = {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "a"}]}
        said = [{"role": "user", "content": [{"type": "input_text", "text": "go"}]}, *items, output]
        await ask(client, said, tools=[SHELL])
    assert web.model.prompts[-1].messages[-1] == ToolMessage("call_1", "a")
    assert await web.path.rows("select count(distinct session_id) from messages") == [(1,)]


async def test_ids_mean_something_within_one_token_only(web: Web):
    async with program(web, "one") as one, program(web, "two") as two:
        response = await ask(one, "my secret")
        for id in (response.id, "resp_0", "nonsense"):
            with pytest.raises(openai.BadRequestError) as raised:
                await ask(two, "go on", previous_response_id=id)
            assert raised.value.code == "previous_response_not_found"
        with pytest.raises(openai.BadRequestError, match="no item"):
            await ask(two, [{"type": "item_reference", "id": response.output[0].id}, {"role": "user", "content": "x"}])
    assert len(web.model.prompts) == 1


async def test_a_form_is_asked_for_and_checked(web: Web):
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object", "required": ["a"]}, "strict": True}
    web.model.says('{"a": 1}')
    web.model.says("{}")
    async with program(web) as client:
        assert (await ask(client, "x", text={"format": form})).output_text == '{"a": 1}'
        with pytest.raises(openai.APIStatusError, match="'a' is a required property"):
            await ask(client, "y", text={"format": form})
    described = {name: value for name, value in form.items() if name != "type"}
    assert web.model.prompts[0].answer_format == {"type": "json_schema", "json_schema": described}


@pytest.mark.parametrize(
    ("said", "more", "param"),
    [
        ([], {}, "input"),
        ("hi", {"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ("hi", {"background": True}, "background"),
        ([{"type": "computer_call"}], {}, "input[0]"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/a.png"}]}], {}, None),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(web: Web, said: object, more: dict, param: str | None):
    async with program(web) as client:
        with pytest.raises(openai.BadRequestError) as raised:
            await ask(client, said, **more)
    assert raised.value.param == (param or "input[0].content[0].image_url.url")
