"""JSON, for data that is not parsed into types yet: its types, values by their paths, texts, and shorter schemas."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import JsonValue, TypeAdapter

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
JsonObject: TypeAlias = Mapping[str, Json]
KeyPath: TypeAlias = tuple[int | str, ...]
OBJECT = TypeAdapter(dict[str, JsonValue])
"""Any JSON object."""


Schema: TypeAlias = dict[str, Any]
"""A JSON Schema, or a part of one."""


def json_or_text(text: str) -> JsonValue:
    """The value that the text is in JSON, else the text itself."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def text_or_json(value: object) -> str:
    """The text itself, or another value in JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def fields_of(value: JsonValue) -> dict[str, JsonValue]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def value_at(value: JsonValue, path: KeyPath) -> JsonValue:
    """The value at `path`, or None."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def map_texts(value: JsonValue, change: Callable[[KeyPath, str], str], path: KeyPath = ()) -> JsonValue:
    """`value` with `change` applied to every text in it."""
    match value:
        case dict():
            return {key: map_texts(item, change, (*path, key)) for key, item in value.items()}
        case list():
            return [map_texts(item, change, (*path, index)) for index, item in enumerate(value)]
        case str():
            return change(path, value)
        case _:
            return value


def simplified(schema: Schema, definitions: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """A schema with its references resolved, an optional value as its plain type, and each part of it changed."""
    whole = _resolved(schema, definitions)
    return change({key: _part(key, value, definitions, change) for key, value in whole.items()})


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    if "$ref" in schema:
        target = definitions.get(str(schema["$ref"]).rpartition("/")[2]) or {}
        own = {key: value for key, value in schema.items() if key != "$ref"}
        return {**{key: value for key, value in target.items() if key != "description"}, **own}
    match [option for option in schema.get("anyOf") or () if option != {"type": "null"}]:
        case [dict() as only]:
            own = {key: value for key, value in schema.items() if key != "anyOf"}
            return {**_resolved(only, definitions), **own}
    return schema


def _part(key: str, value: Any, definitions: Schema, change: Callable[[Schema], Schema]) -> Any:
    match key, value:
        case "properties", dict():
            return {name: _part("items", field, definitions, change) for name, field in value.items()}
        case (("anyOf" | "oneOf" | "allOf" | "prefixItems"), list()):
            return [_part("items", option, definitions, change) for option in value]
        case (("items" | "additionalProperties"), dict()):
            return simplified(value, definitions, change)
    return value
