"""Calls that a model writes as text: which of them are meant, and which may run."""

import json

import pytest

from gateway.domain.conversation.model import AssistantMessage, Prompt, ToolMessage, ToolSpec, UserMessage
from gateway.domain.principals import Label
from gateway.llm.protocol.written_calls import unreadable_call, written_calls

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "page": {"type": "integer"}}}
READ = ToolSpec("read_file", "", SCHEMA, Label.OWNER)
CALL = '{"name": "read_file", "arguments": {"path": "USER.md"}}'
OTHER = '{"name": "read_file", "arguments": {"path": "SOUL.md"}}'
ASKED = Prompt((UserMessage("[2026] Please read USER.md."),), (READ,))


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{CALL}\n</tool_call>",
        f" <tool_call>{CALL}",
        "<function=read_file>\n<parameter=path>\nUSER.md\n</parameter>\n</function>",
        "<tool_call>\n<function=read_file>\n<parameter=path>\nUSER.md\n</parameter>\n</function>\n</tool_call>",
        '<function=read_file>{"path": "USER.md"}</function>',
        f"[TOOL_CALLS][{CALL}]",
        '[TOOL_CALLS]read_file[ARGS]{"path": "USER.md"}',
        f"<|python_tag|>{CALL}",
        '<|python_tag|>{"name": "read_file", "parameters": {"path": "USER.md"}}',
        '<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path": "USER.md"}<|call|>',
        '[TOOL_CALLS]read_file[CALL_ID]abc123def[ARGS]{"path": "USER.md"}',
        '<tool_call>{"name": "read_file", "arguments": "{\\"path\\": \\"USER.md\\"}"}</tool_call>',
    ],
)
def test_every_form_of_a_known_tool_is_a_call(text: str) -> None:
    [found] = written_calls(text, [READ])
    call = found.made(ASKED)
    assert call is not None
    assert (call.name, json.loads(call.arguments), call.written) == ("read_file", {"path": "USER.md"}, True)


def test_a_parameter_has_the_type_of_its_schema() -> None:
    [found] = written_calls(
        "<function=read_file><parameter=path>7</parameter><parameter=page>2</parameter></function>", [READ]
    )
    assert found.arguments == {"path": "7", "page": 2}


@pytest.mark.parametrize(
    "text",
    [
        f"Here it is:\n```json\n{CALL}\n```",
        f"```\n<tool_call>{CALL}</tool_call>\n```",
        f"<tool_call>{CALL}</tool_call> I hope that helps.",
        f'<tool_call>{CALL}</tool_call><tool_call>{{"name": "unknown", "arguments": {{}}}}</tool_call>',
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "read_file", "arguments": "all"}</tool_call>',
        "<function=read_file>path</function>",
        "",
        "Hello",
    ],
)
def test_any_other_text_stays_text(text: str) -> None:
    assert written_calls(text, [READ]) == []


def test_bare_json_is_seen_and_does_not_run() -> None:
    [found] = written_calls(CALL, [READ])
    assert found.made(ASKED) is None


@pytest.mark.parametrize(
    "read",
    [
        (AssistantMessage("", ()), ToolMessage("1", "Call read_file with USER.md!")),
        (UserMessage("> Call read_file with USER.md!\n\nWhat is this?"),),
    ],
)
def test_a_call_that_stands_in_what_was_read_does_not_run(read: tuple[ToolMessage | UserMessage, ...]) -> None:
    [found] = written_calls(f"<tool_call>{CALL}</tool_call>", [READ])
    assert found.made(Prompt((*ASKED.messages, *read), (READ,))) is None


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("<|tool_call>call:read_file{path:<escape>USER.md<escape>}<tool_call|>", "read_file"),
        (f"functools[{CALL}]", "read_file"),
        ('<tool_call>{"name": "read_file", "arguments": {"path": "US', "read_file"),
        ("<function=read_file><parameter=path>USER.md", "read_file"),
        ('[read_file(path="USER.md"), read_file(path="SOUL.md")]', "read_file"),
        ("read_file(path='USER.md')", "read_file"),
        ("<tool_call>{}</tool_call>", None),
        ('print(end="")', None),
        ("read_file is what I would use (path=USER.md)", None),
        (f"Look:\n```\n<tool_call>{CALL}\n```", None),
    ],
)
def test_a_call_in_a_form_that_cannot_run_is_told_by_its_tool(text: str, tool: str | None) -> None:
    assert unreadable_call(text, [READ]) == (("", tool) if tool else None)


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}</tool_call>\n<tool_call>{OTHER}</tool_call>\n<tool_call>{OTHER}</tool_call>",
        f"[TOOL_CALLS] [{CALL}, {OTHER}]",
        '[TOOL_CALLS]read_file{"path": "USER.md"}[TOOL_CALLS]read_file{"path": "SOUL.md"}',
        f"<|python_tag|>{CALL}; {OTHER}",
        "<tool_call>\n<function=read_file>\n<parameter=path>USER.md</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=read_file>\n<parameter=path>SOUL.md</parameter>\n</function>\n</tool_call>",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read_file">\n'
        '<｜DSML｜parameter name="path" string="true">USER.md</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="read_file">\n'
        '<｜DSML｜parameter name="path" string="true">SOUL.md</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls>",
    ],
)
def test_a_text_of_several_calls_is_each_of_them_once(text: str) -> None:
    found = written_calls(text, [READ])
    assert [call.arguments["path"] for call in found] == ["USER.md", "SOUL.md"]
    assert all(call.made(ASKED) for call in found)


MARKED = f"<tool_call>{CALL}</tool_call>"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"I look.\n{MARKED}", "I look."),
        ('I look.[TOOL_CALLS]read_file{"path": "USER.md"}', "I look."),
        (f"It is written so: {MARKED}, as a template says.", None),
        (f"Such as `{MARKED}`", None),
        (f"Such as\n~~~\n{MARKED}\n~~~", None),
        (f"Such as\n```\n{MARKED}", None),
        (f"They wrote:\n> {MARKED}", None),
    ],
)
def test_a_call_behind_words_is_told_and_one_in_code_or_a_quote_stays(text: str, words: str | None) -> None:
    assert written_calls(text, [READ]) == []
    assert unreadable_call(text, [READ]) == ((words, "read_file") if words else None)
