"""The JSON Schema of a tool's arguments, as small as a model needs it."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, model_validator

from gateway.domain.json import JsonObject
from gateway.domain.tools import OpenArguments


def parameters_of(arguments: type[BaseModel]) -> JsonObject:
    """Without titles, class docstrings and references; an optional field is shown as its plain type.

    That no other fields are allowed is checked, not told: every prompt would pay for it.
    """
    return _made_once(arguments)


def open_arguments(schema: JsonObject) -> type[OpenArguments]:
    """Arguments by a schema that is data: its names are checked here, the values by whoever the call goes to."""
    properties, needed = schema.get("properties"), schema.get("required")
    known = set(properties) if isinstance(properties, Mapping) else set()
    required = [str(each) for each in needed] if isinstance(needed, list | tuple) else []

    class Arguments(OpenArguments):
        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return dict(schema)

        @model_validator(mode="before")
        @classmethod
        def _named(cls, value: object) -> object:
            given = set(value) if isinstance(value, dict) else set()
            if unknown := sorted(map(str, given - known)):
                raise ValueError(f"unknown: {', '.join(unknown[:5])}; known: {', '.join(sorted(known)) or 'nothing'}")
            if missing := [name for name in required if name not in given]:
                raise ValueError(f"missing: {', '.join(missing)}")
            return value

    return Arguments


@cache
def _made_once(arguments: type[BaseModel]) -> JsonObject:
    schema = arguments.model_json_schema()
    return _compact(schema, schema.get("$defs", {}))


def _compact(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    schema = _resolved(schema, definitions)
    small = {key: _value(key, value, definitions) for key, value in schema.items() if key not in {"title", "$defs"}}
    if small.get("additionalProperties") is False:
        del small["additionalProperties"]
    if "properties" in small:
        small.pop("description", None)
    if small.get("default", ...) is None:
        del small["default"]
    return small


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        own = {key: value for key, value in schema.items() if key != "$ref"}
        return {**{key: value for key, value in target.items() if key != "description"}, **own}
    match [option for option in schema.get("anyOf", []) if option.get("type") != "null"]:
        case [only]:
            own = {key: value for key, value in schema.items() if key != "anyOf"}
            return {**_resolved(only, definitions), **own}
    return schema


def _value(key: str, value: Any, definitions: Mapping[str, Any]) -> Any:
    match key, value:
        case "properties", dict():
            return {name: _compact(field, definitions) for name, field in value.items()}
        case (("items" | "additionalProperties"), dict()):
            return _compact(value, definitions)
        case (("anyOf" | "oneOf" | "allOf" | "prefixItems"), list()):
            return [_compact(option, definitions) for option in value]
    return value
