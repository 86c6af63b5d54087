"""JSON types, for data that is not parsed into types yet."""

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pydantic import JsonValue

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
JsonObject: TypeAlias = Mapping[str, Json]


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
