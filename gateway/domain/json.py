"""JSON, for data that is not parsed into types yet: its types, values by their paths, and texts."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pydantic import JsonValue, TypeAdapter

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
JsonObject: TypeAlias = Mapping[str, Json]
KeyPath: TypeAlias = tuple[int | str, ...]
OBJECT = TypeAdapter(dict[str, JsonValue])
"""Any JSON object."""


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
