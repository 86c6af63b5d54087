"""The JSON Schema of config.json, for editors."""

from pydantic import JsonValue, TypeAdapter

from gateway.config.model import Config

_OBJECT = TypeAdapter(dict[str, JsonValue])
_REFERENCE: JsonValue = {"type": "string", "pattern": "^\\$(env|secret):.+"}
_SCALARS = ("integer", "number", "boolean")


def schema() -> dict[str, JsonValue]:
    """The schema, draft 2020-12; numbers and booleans may also be `$env:` or `$secret:` references."""
    plain = _OBJECT.validate_python(Config.model_json_schema())
    own: JsonValue = {"type": "string", "description": "Where an editor finds this schema."}
    plain["properties"] = {**_OBJECT.validate_python(plain["properties"]), "$schema": own}
    described = {key: referable(value) for key, value in plain.items()}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}


def referable(node: JsonValue) -> JsonValue:
    """`node` with references allowed for its numbers and booleans."""
    if isinstance(node, list):
        return [referable(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") in _SCALARS:
        about = {key: value for key, value in node.items() if key in ("default", "description", "title")}
        return about | {"anyOf": [{key: value for key, value in node.items() if key not in about}, _REFERENCE]}
    return {key: referable(value) for key, value in node.items()}
