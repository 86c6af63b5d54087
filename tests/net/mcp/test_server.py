"""What a model is shown of what a server says: bounded, visible, and nothing a provider refuses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.net.mcp.server import (
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_SCHEMA,
    ToolDefinition,
    public_url,
    visible,
    visible_json,
)

URL = "https://mcp.example/mcp"


def tool(name: str = "weather", description: str = "", /, **schema: Any) -> ToolDefinition:
    return ToolDefinition("w", URL, name, description, schema)


def test_names_are_ours_and_short() -> None:
    assert tool("get-weather_2").tool_name == "mcp_w_get-weather_2"
    odd = [tool(name).tool_name for name in ("a.b", "a/b", "a b", "x" * 100, "x" * 101, "\u202eweather", "")]
    assert len(set(odd)) == len(odd)
    assert all(len(name) <= MAX_NAME and name.startswith("mcp_w_") and name.isascii() for name in odd)


def test_each_part_counts_for_the_hash() -> None:
    base = ToolDefinition("w", URL, "a", "b", {"type": "object"})
    others = [
        ToolDefinition("v", URL, "a", "b", {"type": "object"}),
        ToolDefinition("w", URL + "2", "a", "b", {"type": "object"}),
        ToolDefinition("w", URL, "c", "b", {"type": "object"}),
        ToolDefinition("w", URL, "a", "b\u200b", {"type": "object"}),
        ToolDefinition("w", URL, "a", "b", {"type": "object", "x": 1}),
    ]
    assert len({each.sha256 for each in (base, *others)}) == 6
    assert ToolDefinition(**json.loads(base.content)) == base


def test_what_hides_is_removed() -> None:
    hidden = "\U000e0041\u202e\u200b\ufeff\u2066\ufe0f\U000e0100\x1b[2J\u3164"
    assert visible(f"Reads{hidden} mail\n\tOK") == "Reads[2J mail\n\tOK"
    assert len(tool("a", "x" * 5_000).shown_description) == MAX_DESCRIPTION


def test_references_are_put_in_place_and_unknown_keywords_left_out() -> None:
    shown = tool(
        type="object",
        properties={
            "city": {"$ref": "#/$defs/City"},
            "days": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
            "bad name!": {"type": "string"},
        },
        required=["city", "bad name!"],
        oneOf=[{"required": ["city"]}],
        **{"$defs": {"City": {"type": "string", "description": "A\u202e city", "pattern": "(a+)+$"}}},
    ).shown_parameters
    assert shown == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "A city"},
            "days": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        },
        "required": ["city"],
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}, "d": {"$ref": "#"}}},
        {"properties": {f"p{n}": {"type": "string", "description": "x" * 900} for n in range(500)}},
        {"properties": {"a": {"enum": ["x" * 10_000] * 1_000}}},
        {"type": ["object"], "properties": [], "required": "x"},
        {"properties": {"a": {"$ref": "https://evil.example/schema.json"}}},
    ],
    ids=["itself", "itself four times", "many", "large", "nonsense", "elsewhere"],
)
def test_a_hostile_schema_is_small_and_an_object(schema: dict[str, Any]) -> None:
    shown = tool(**schema).shown_parameters
    assert shown["type"] == "object"
    assert isinstance(shown["properties"], dict)
    assert len(json.dumps(shown)) <= MAX_SCHEMA


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "$ref", "anyOf", "enum", "required", "description", "a"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(st.dictionaries(st.sampled_from(["properties", "$defs", "items", "required", "$ref", "anyOf"]), JSON))
def test_no_schema_breaks_a_prompt(schema: dict[str, Any]) -> None:
    shown = tool(**schema).shown_parameters
    assert json.loads(json.dumps(shown))["type"] == "object"


def test_an_address_is_shown_without_what_may_be_a_credential() -> None:
    assert public_url("https://u:p@mcp.example:8443/mcp?api_key=x#y") == "https://mcp.example:8443/mcp"


def test_nothing_hidden_is_in_the_data_of_a_result_either() -> None:
    hidden = "a" + "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    assert visible_json({hidden: [hidden, {"b": "c\u202ed"}, 1, None, True]}) == {
        "a": ["a", {"b": "cd"}, 1, None, True]
    }
