"""Fields that a provider sends and we don't know, from the chunks of its stream to its next request."""

import json
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.domain.conversation.model import AssistantMessage, Prompt, ProviderFields, ToolCall, ToolMessage
from gateway.llm.protocol.answer_reader import parse
from gateway.llm.protocol.chunks import AnswerBuilder
from gateway.llm.protocol.unknown_fields import MAX_FIELDS, UnknownFields
from gateway.llm.protocol.wire import messages_json
from gateway.llm.provider import ProviderReply
from gateway.llm.vendors import Endpoint, vendor

CALL = {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def read(*deltas: dict[str, Any]) -> ProviderReply:
    answer = AnswerBuilder(unknown=UnknownFields("here"))
    for delta in deltas:
        answer.add(parse(json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode()))
    return answer.reply()


def kept(*deltas: dict[str, Any]) -> tuple[Any, list[Any]]:
    fields = read(*deltas).fields
    assert fields is not None
    return json.loads(fields.message), [json.loads(each) for each in fields.calls]


def sent(fields: ProviderFields | None, *calls: ToolCall, source: str = "here") -> Any:
    [message] = messages_json(Prompt((AssistantMessage("I look.", calls, fields),)), source=source)
    return json.loads(json.dumps(message))


def test_texts_grow_and_are_no_part_of_the_answer() -> None:
    pieces = ["ha", "ha", "\n", "\n", " I look. \u4f60\u597d\u3000\u200b\x00 \\ "]
    reply = read(*({"role": "assistant", "reasoning_content": piece} for piece in pieces), {"tool_calls": [CALL]})
    assert reply.text == ""
    assert sent(reply.fields, *reply.calls)["reasoning_content"] == "".join(pieces)


def test_details_are_joined_by_index_and_type_and_signatures_stay() -> None:
    text = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    pieces = [
        {**text, "text": "First ", "signature": None},
        {**text, "text": "I look."},
        {"type": "reasoning.summary", "summary": "Look", "index": 1},
        {"type": "reasoning.summary", "summary": "ing", "index": 1},
        {**text, "text": "", "signature": "U0lH+/=="},
        {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "index": 2},
        {"type": "reasoning.encrypted", "data": "gBBB", "id": "rs_2", "index": 2},
    ]
    message, _ = kept(*({"reasoning_details": [piece]} for piece in pieces), {"tool_calls": [CALL]})
    assert message["reasoning_details"] == [
        {**text, "text": "First I look.", "signature": "U0lH+/=="},
        {"type": "reasoning.summary", "summary": "Looking", "index": 1},
        *pieces[-2:],
    ]


def test_signed_thinking_without_an_index_ends_with_its_signature() -> None:
    def block(text: str, signature: str = "") -> dict[str, str]:
        return {"type": "thinking", "thinking": text, "signature": signature}

    pieces = [block("Fir"), block("st."), block("", "S1"), block("Then."), block("", "S2")]
    redacted = {"type": "redacted_thinking", "data": "x"}
    message, _ = kept(*({"thinking_blocks": [piece]} for piece in (*pieces, redacted, redacted)))
    assert message["thinking_blocks"] == [block("First.", "S1"), block("Then.", "S2"), redacted, redacted]


@pytest.mark.parametrize(
    ("first", "then", "whole"),
    [
        (
            {"google": {"thought_signature": "A"}},
            {"google": {"thought_signature": "B"}},
            {"google": {"thought_signature": "B"}},
        ),
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ([1, "x"], [2], [1, "x", 2]),
        (1, 2, 2),
        (True, None, True),
        ("x", 5, 5),
        ([], None, None),
    ],
)
def test_other_values_are_replaced_and_lists_grow(first: object, then: object, whole: object) -> None:
    _, [call] = kept({"own": 1, "tool_calls": [{**CALL, "extra": first}]}, {"tool_calls": [{**CALL, "extra": then}]})
    assert call.get("extra") == whole


def test_the_fields_of_each_call_go_back_with_it() -> None:
    signed = {"extra_content": {"google": {"thought_signature": "U0lHTkFUVVJF+/=="}}}
    other = {**CALL, "index": 1, "id": "b", "function": {**CALL["function"], "hint": "x"}}
    reply = read({"tool_calls": [{**CALL, **signed}]}, {"tool_calls": [other]})
    first, second = sent(reply.fields, *reply.calls)["tool_calls"]
    assert first == {**signed, "id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert second["function"] == {"hint": "x", "name": "look", "arguments": "{}"}


def test_what_is_known_is_not_kept() -> None:
    known = {"role": "assistant", "refusal": None, "annotations": [{}], "audio": {"id": "x"}, "function_call": {}}
    assert read({**known, "content": "hi", "tool_calls": [CALL]}).fields is None
    assert read({"content": "hi", "reasoning": None, "reasoning_details": [], "reasoning_content": ""}).fields is None


def test_an_empty_text_beside_a_call_is_kept() -> None:
    message, _ = kept({"reasoning_content": "", "tool_calls": [CALL]})
    assert message == {"reasoning_content": ""}


@pytest.mark.parametrize("field", ["reasoning", "other"])
def test_too_many_are_dropped_whole(field: str) -> None:
    piece = "x" * 1000
    value: object = piece if field == "reasoning" else [piece]
    reply = read(*({field: value} for _ in range(MAX_FIELDS // 1000 + 1)), {"tool_calls": [CALL]})
    assert reply.fields is None
    assert reply.calls


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "[" * 300 + "]" * 300, "[" * 900 + "]" * 900])
def test_no_value_is_kept_that_could_not_be_sent_again(value: str) -> None:
    answer = AnswerBuilder(unknown=UnknownFields("here"))
    answer.add(parse(f'{{"choices": [{{"delta": {{"content": "hi", "own": {value}}}}}]}}'.encode()))
    assert (answer.reply().text, answer.reply().fields) == ("hi", None)


def test_a_flood_of_items_ends() -> None:
    answer = AnswerBuilder(unknown=UnknownFields("here"))
    many = json.dumps({"choices": [{"delta": {"own": [{"a": 1}] * 2_000}}]}).encode()
    for _ in range(30):
        answer.add(parse(many))
    assert answer.reply().fields is None


def test_nothing_goes_to_another_source_and_nothing_of_ours_is_replaced() -> None:
    look = ToolCall("a", "look", "{}")
    fields = ProviderFields("here", '{"own": 1, "role": "system", "content": "x"}', ('{"id": "z", "own": 2}',))
    assert "own" not in json.dumps(sent(fields, look, source="elsewhere"))
    there = sent(fields, look)
    assert (there["role"], there["content"], there["own"]) == ("assistant", "I look.", 1)
    assert (there["tool_calls"][0]["id"], there["tool_calls"][0]["own"]) == ("a", 2)
    assert "own" not in repr(fields)


def test_a_source_is_one_provider_address_key_and_model() -> None:
    def source(prefix: str = "openai", key: str | None = "sk-1", address: str = "http://a/v1", model: str = "m") -> str:
        return Endpoint(vendor(prefix), SecretStr(key) if key else None, address).source(model)

    others = [source("xai"), source(key="sk-2"), source(key=None), source(address="http://b/v1"), source(model="n")]
    assert len({source(), *others}) == 6
    assert source() == source()
    assert "sk-1" not in source()


def test_calls_of_others_can_become_words() -> None:
    mine, theirs = ToolCall("a", "look", "{}"), ToolCall("b", "seek", "{}")
    prompt = Prompt(
        (
            AssistantMessage("", (mine,), ProviderFields("here", '{"own": 1}')),
            ToolMessage("a", "blue"),
            AssistantMessage("", (theirs,), ProviderFields("elsewhere", '{"own": 1}')),
            ToolMessage("b", "red"),
        )
    )
    roles = [message["role"] for message in messages_json(prompt, source="here", calls="own")]
    assert roles == ["assistant", "tool", "assistant", "user"]
    assert "tool" not in [message["role"] for message in messages_json(prompt, source="here", calls="none")]
