import json

import pytest

from gateway.domain.conversation.model import ToolCall, Usage
from gateway.llm.errors import ModelError
from gateway.llm.protocol.answer_reader import parse
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
    reply = add_up(piece('{"x"', name="one"), piece(":1}"), piece(index=None, id="b", name="two"))
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
    [call] = add_up(piece("{", id="i" * 9999, index=0, name="look"), piece("}", index=0)).calls
    assert len(call.id) < 40
    assert call.arguments == "{}"


READ = {"name": "read_file", "index": 0, "id": "a"}
PATH = '{"path":"USER.md"}'


@pytest.mark.parametrize(
    "pieces",
    [
        [('{"pa', READ), ('th":"USER', READ), ('.md"}', READ)],  # the name in each piece
        [('{"path":', READ), (PATH, READ)],  # from the start again
        [(PATH, READ), (PATH, READ)],
        [(PATH, {**READ, "name": "functions.read_file"})],
        [(PATH, {**READ, "name": "functions.read_file:0"})],
        [(PATH, {**READ, "name": "default_api.read_file"})],
        [("", {**READ, "name": "read"}), (PATH, {**READ, "name": "_file"})],
        [("", {**READ, "name": "read"}), (PATH, {**READ, "name": "read_file"})],
        [(PATH, {"index": 0, "id": "a"}), ("", READ)],  # the name after the arguments
        [(json.dumps(PATH), READ)],  # encoded twice
        [(f"{PATH}}}", READ)],  # a brace too many
        [(f"```json\n{PATH}\n```</tool_call>", READ)],
        [(f"{{}}{PATH}", READ)],
        [(PATH, {**READ, "name": " read_file<|channel|>commentary"})],
        [('{"path":', READ), ('"USER.md"}', {"index": 0, "id": "b"})],  # a new id in each piece
        [("", {"index": 1, "id": "b"}), (PATH, READ)],  # an empty piece of no call
    ],
)
def test_one_call_is_one_whatever_is_repeated(pieces: list[tuple[str, dict[str, object]]]) -> None:
    reply = add_up(*(piece(arguments, **more) for arguments, more in pieces))
    assert [(call.name, call.arguments) for call in reply.calls] == [("read_file", PATH)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{'path': 'a', 'text': None}", {"path": "a", "text": None}),
        ("{'path': \"it's\", 'all': true,}", {"path": "it's", "all": True}),
        ('{"path": "[1,]", "more": [1,],}', {"path": "[1,]", "more": [1]}),
        ('{"path": "null", "n": null,}', {"path": "null", "n": None}),
        ('{"seconds": NaN, "most": -Infinity}', {"seconds": None, "most": None}),
        ("```python\n{'path': 'a'}\n```", {"path": "a"}),
        (PATH * 2, json.loads(PATH)),
        ("\ufeff" + PATH, json.loads(PATH)),
    ],
)
def test_arguments_that_are_nearly_json_are_read(written: str, meant: object) -> None:
    [call] = add_up(piece(written, **READ)).calls
    assert json.loads(call.arguments) == meant


@pytest.mark.parametrize(
    "written",
    ["{'path': open('a')}", "{'path': ", '{"a": 1} {"a": 2}', "{1: 2, **{}}", "{'a': {1, 2}}", "{" * 60_000, "['a']"],
)
def test_other_arguments_stay_as_they_are(written: str) -> None:
    [call] = add_up(piece(written, **READ)).calls
    assert call.arguments == written


@pytest.mark.parametrize("place", [{}, {"index": 0}])
def test_another_name_behind_whole_arguments_begins_another_call(place: dict[str, object]) -> None:
    one = piece("", name="read_file", **place), piece(PATH, **place)
    reply = add_up(*one, piece("", name="list_files", **place), piece("{}", **place))
    assert [(call.name, call.arguments) for call in reply.calls] == [("read_file", PATH), ("list_files", "{}")]


def test_pieces_without_an_index_find_their_call_by_id() -> None:
    begun = piece("", id="a", name="one"), piece("", id="b", name="two")
    reply = add_up(*begun, piece('{"x"', id="a"), piece("{", id="b"), piece(":1}", id="a"), piece("}", id="b"))
    assert [(call.name, call.arguments) for call in reply.calls] == [("one", '{"x":1}'), ("two", "{}")]


def test_two_objects_under_one_index_and_id_are_two_calls() -> None:
    reply = add_up(piece('{"path":"SOUL.md"}', **READ), piece(PATH, **READ))
    first, second = reply.calls
    assert (first.arguments, second.arguments, first.name) == ('{"path":"SOUL.md"}', PATH, second.name)
    assert first.id != second.id


@pytest.mark.parametrize("arguments", ["", "null"])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    assert add_up(piece(arguments, **READ)).calls[0].arguments == "{}"


def test_words_and_calls_of_every_choice_count() -> None:
    answer = AnswerBuilder()
    choices = [
        {"index": 0, "delta": {"content": "I look."}},
        {"index": 1, "delta": piece(PATH, **READ)},
        {"index": 2, "delta": piece('{"path":"SOUL.md"}', **READ)},
    ]
    assert answer.add(Chunk.model_validate_json(json.dumps({"choices": choices}))) == "I look."
    assert [call.arguments for call in answer.reply().calls] == [PATH, '{"path":"SOUL.md"}']


def called(id: object, index: object, arguments: object) -> dict[str, list[object]]:
    return {"tool_calls": [{"id": id, "index": index, "function": {"name": "read_file", "arguments": arguments}}]}


@pytest.mark.parametrize(
    ("delta", "text", "calls"),
    [
        ({"content": {}}, "", 0),
        ({"content": 5}, "5", 0),
        ({"content": [{"text": "hi"}]}, "hi", 0),
        ({"tool_calls": [{"id": "a", "name": "read_file", "arguments": json.loads(PATH)}]}, "", 1),
        ({"content": "hi", "refusal": []}, "hi", 0),
        ({"content": "hi", "tool_calls": "none"}, "hi", 0),
        (
            {"tool_calls": [{"id": 7, "index": "0", "function": {"name": "read_file", "arguments": json.loads(PATH)}}]},
            "",
            1,
        ),
        ({"tool_calls": [{"id": ["a"], "index": {}, "function": {"name": "read_file", "arguments": PATH}}]}, "", 1),
        ({"tool_calls": [None, {"id": "b", "function": {"name": "read_file", "arguments": PATH}}]}, "", 1),
    ],
)
def test_a_value_of_another_type_spoils_nothing(delta: object, text: str, calls: int) -> None:
    answer = AnswerBuilder()
    payload = json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": {}}], "usage": 3, "error": None})
    assert answer.add(parse(payload.encode())) == text
    made = answer.reply().calls
    assert [json.loads(call.arguments) for call in made if call.name] == [json.loads(PATH)] * calls
