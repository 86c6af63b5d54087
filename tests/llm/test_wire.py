import json

import pytest

from gateway.domain.conversation.model import AssistantMessage, Image, Prompt, ToolCall, ToolMessage, UserMessage
from gateway.domain.settings import CallParams
from gateway.llm.protocol.wire import PICTURES, alternating, call_id, messages_json, plain_tools, sampling_json


@pytest.mark.parametrize("short", [False, True])
def test_a_call_keeps_its_result_whatever_its_id_looked_like(short: bool) -> None:
    original = "call_1__thought__" + "x" * 80 + "=="
    prompt = Prompt((AssistantMessage("", (ToolCall(original, "look", "{}"),)), ToolMessage(original, "blue")))
    asked, answered = json.loads(json.dumps(messages_json(prompt, source="", short_ids=short)))
    assert asked["tool_calls"][0]["id"] == answered["tool_call_id"]


def test_call_ids_fit_the_provider() -> None:
    assert call_id("call_abc", short=False) == "call_abc"
    assert len(call_id("x" * 41, short=False)) == 32
    assert len(call_id("call_abc", short=True)) == 9
    assert call_id("call_abc", short=True).isalnum()


@pytest.mark.parametrize(
    ("written", "sent"), [('{"a": 1}', {"a": 1}), ("{oops", {"malformed": "{oops"}), ("[]", {"malformed": "[]"})]
)
def test_arguments_always_are_an_object(written: str, sent: object) -> None:
    [message] = json.loads(
        json.dumps(messages_json(Prompt((AssistantMessage("", (ToolCall("1", "look", written),)),)), source=""))
    )
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == sent


def test_an_answer_without_calls_is_plain_text() -> None:
    assert messages_json(Prompt((AssistantMessage("hi"),)), source="") == [{"role": "assistant", "content": "hi"}]


LEAF = {"type": "object", "description": "Lost", "properties": {"inner": {"$ref": "#/$defs/Leaf"}}, "minProperties": 1}


@pytest.mark.parametrize(
    ("field", "plain"),
    [
        ({"type": "string", "format": "uri", "description": "Where"}, {"type": "string", "description": "Where"}),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None}, {"type": "integer"}),
        ({"oneOf": [{"type": "boolean"}, {"type": "string"}]}, {"type": "boolean"}),
        ({"type": ["null", "number"]}, {"type": "number"}),
        ({"type": "string", "enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer"}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "array", "items": {"const": 1, "type": "integer"}}, {"type": "array", "items": {"type": "integer"}}),
        (
            {"$ref": "#/$defs/Leaf"},
            {"type": "object", "properties": {"inner": {"type": "string"}}, "required": []},
        ),
        ({"$ref": "#/$defs/Unknown"}, {"type": "string"}),
        ({"type": [], "anyOf": None, "properties": None}, {"type": "string"}),
    ],
)
def test_plain_schemas_have_the_keywords_that_every_provider_takes(field: object, plain: object) -> None:
    parameters = {"$schema": "x", "properties": {"it": field}, "required": ["it", "gone"], "$defs": {"Leaf": LEAF}}
    tool = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": parameters}}
    sent = {"type": "object", "properties": {"it": plain}, "required": ["it"]}
    assert plain_tools([tool]) == [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": sent}}
    ]


def test_a_schema_that_refers_to_itself_in_every_field_stays_small() -> None:
    each = {"properties": {f"f{place}": {"$ref": "#/$defs/Each"} for place in range(40)}}
    function = {"name": "look", "description": "", "parameters": {**each, "$defs": {"Each": each}}}
    assert len(json.dumps(plain_tools([{"type": "function", "function": function}]))) < 100_000


def test_only_sampling_that_says_something_is_sent() -> None:
    assert sampling_json(CallParams()) == {"temperature": 0.7}
    assert sampling_json(CallParams(temperature=None, top_p=None)) == {}
    assert sampling_json(CallParams(temperature=1.0, top_p=0.9)) == {"temperature": 1.0, "top_p": 0.9}


def test_pictures_come_before_the_words_about_them() -> None:
    [message] = messages_json(Prompt((UserMessage("what is it?", (Image("image/jpeg", b"\xff\xd8"),)),)), source="")
    assert message == {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9g="}},
            {"type": "text", "text": "what is it?"},
        ],
    }


def test_the_pictures_of_results_come_in_a_user_message_behind_all_of_them() -> None:
    picture = Image("image/jpeg", b"\xff\xd8")
    calls = AssistantMessage("", (ToolCall("one", "read_file", "{}"), ToolCall("two", "read_file", "{}")))
    round = (UserMessage("look"), calls, ToolMessage("one", "1", (picture,)), ToolMessage("two", "2", (picture,)))
    for later, words in (((), PICTURES), ((UserMessage("and?"),), f"{PICTURES}\n\nand?")):
        *_, first, second, shown = messages_json(Prompt((*round, *later)), source="")
        assert [(each["role"], each["content"]) for each in (first, second)] == [("tool", "1"), ("tool", "2")]
        *pictures, text = shown["content"]
        assert shown["role"] == "user"
        assert [each["type"] for each in pictures] == ["image_url"] * 2
        assert text == {"type": "text", "text": words}
    answered = messages_json(Prompt((*round, AssistantMessage("a cat"))), source="")
    assert [each["role"] for each in answered] == ["user", "assistant", "tool", "tool", "user", "assistant"]


def test_an_answer_stands_between_results_and_words_where_roles_must_alternate() -> None:
    calls = AssistantMessage("", (ToolCall("one", "read_file", "{}"),))
    prompt = Prompt((UserMessage("look"), calls, ToolMessage("one", "1"), UserMessage("and?")))
    made = alternating(messages_json(prompt, source=""))
    assert [each["role"] for each in made] == ["user", "assistant", "tool", "assistant", "user"]
    picture = UserMessage("what is it?", (Image("image/jpeg", b"\xff\xd8"),))
    assert len(alternating(messages_json(Prompt((UserMessage("look"), picture)), source=""))) == 2
