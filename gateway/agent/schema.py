"""The JSON Schema of a tool's arguments, as small as a model needs it."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from gateway.domain.json import JsonObject


def parameters_of(arguments: type[BaseModel]) -> JsonObject:
    """Without titles, class docstrings and references; an optional field is shown as its plain type.

    That no other fields are allowed is checked, not told: every prompt would pay for it.
    """
    return _made_once(arguments)


def explained(tool: str, arguments: type[BaseModel], error: ValidationError) -> str:
    """What is wrong with the arguments of a call, as the model is told."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    if details[0]["type"] == "json_invalid":
        return f"The arguments are not valid JSON ({details[0]['msg']}); send one JSON object."
    faults = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in details[:5])
    return f"{faults}. {tool} takes: {', '.join(arguments.model_fields) or 'nothing'}."


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
