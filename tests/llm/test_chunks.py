import json

import pytest

from gateway.domain.conversation.model import ToolCall, Usage
from gateway.llm.errors import ModelError
from gateway.llm.protocol.bounds import MAX_CALLS
from gateway.llm.protocol.chunks import AnswerBuilder, Chunk
from gateway.llm.provider import ProviderReply


def add_up(*deltas: object, **last: object) -> ProviderReply:
    answer = AnswerBuilder()
    for delta in deltas:
        answer.add(Chunk.model_validate_json(json.dumps({"choices": [{"delta": delta}]})))
    answer.add(Chunk.model_validate({"choices": [], **last}))
    return answer.reply()


def piece(arguments: str = "", **rest: object) -> dict[str, object]:
    return {"tool_calls": [{"function": {"name": rest.pop("name", None), "arguments": arguments}, **rest}]}


def test_text_adds_up() -> None:
    assert add_up({"role": "assistant", "content": ""}, {"content": "a"}, None, {"content": "b"}).text == "ab"


def test_refusals_and_lists_of_parts_are_text() -> None:
    thinking = {"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "yes"}]}
    assert add_up(thinking).text == "yes"
    assert add_up({"refusal": "no"}).text == "no"


def test_calls_that_take_turns_are_kept_apart() -> None:
    reply = add_up(
        piece(index=0, id="a", name="one"),
        piece(index=1, id="b", name="two"),
        piece('{"x":', index=0),
        piece('{"y":', index=1),
        piece("1}", index=0),
        piece("2}", index=1),
    )
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        ("a", "one", '{"x":1}'),
        ("b", "two", '{"y":2}'),
    ]


def test_calls_that_share_an_index_are_told_apart_by_id() -> None:
    reply = add_up(piece("{}", index=0, id="a", name="one"), piece("{}", index=0, id="b", name="two"))
    assert [call.name for call in reply.calls] == ["one", "two"]


def test_calls_without_index_or_id_work() -> None:
    reply = add_up(piece('{"x"', name="one"), piece(":1}"), {"tool_calls": [{"index": None, "id": "b"}]})
    first, second = reply.calls
    assert (first.name, first.arguments, second.id, second.arguments) == ("one", '{"x":1}', "b", "{}")
    assert first.id.startswith("call_")


def test_cached_tokens_are_found_where_each_provider_puts_them() -> None:
    openai = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
    deepseek = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4}
    openrouter = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": None}, "cost": 0.5}
    assert add_up(usage=openai).usage == add_up(usage=deepseek).usage == Usage(9, 1, 4)
    assert add_up(usage=openrouter).usage == Usage(9, 0, 0, 0.5)
    assert add_up().usage is None


def test_no_more_calls_than_anybody_asks_for_at_once() -> None:
    def call(number: int) -> dict[str, object]:
        return piece("{}", index=number, id=f"call{number}", name="look")

    assert len(add_up(*map(call, range(MAX_CALLS))).calls) == MAX_CALLS
    with pytest.raises(ModelError, match="more than 64 tool calls"):
        add_up(*map(call, range(MAX_CALLS + 1)))


def test_what_no_database_stores_is_left_out() -> None:
    reply = add_up({"content": "a\0b"}, piece('{"at": "\0"}', id="c\0d", name="lo\0ok"))
    assert (reply.text, reply.calls) == ("ab", (ToolCall("cd", "look", '{"at": ""}'),))


@pytest.mark.parametrize("count", [-1, 10**30, "many", 10**9, 1.5, []])
def test_a_report_of_usage_that_makes_no_sense_is_none(count: object) -> None:
    reply = add_up({"content": "a"}, usage={"prompt_tokens": count, "completion_tokens": 1})
    assert (reply.text, reply.usage) == ("a", None)
    assert add_up({"content": "a"}, usage={"prompt_tokens": 1, "cost": 10**6}).usage is None


def test_a_huge_id_is_replaced() -> None:
    [call] = add_up(piece("{", id="i" * 9999, index=0), piece("}", index=0)).calls
    assert len(call.id) < 40
    assert call.arguments == "{}"
