"""The form a client wants its answer in: passed to the model, and checked before the client gets the answer."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import JsonValue

from gateway.domain.json import JsonObject
from gateway.web.http.errors import Refused

MAX_REFERENCES = 10_000
"""References that are followed in one check: a small schema can ask for more than anybody has time for."""


def format_of(value: JsonValue, param: str) -> JsonObject | None:
    """OpenAI's `response_format`; None for plain text. Raises `Refused`."""
    match value:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "json_object"}
        case {"type": "json_schema", "json_schema": {"name": str(), "schema": dict(schema)} as described}:
            _refuse_unusable(schema, f"{param}.json_schema.schema")
            return {"type": "json_schema", "json_schema": described}
        case _:
            message = f"'{param}' must be of type text, json_object, or json_schema with a name and a schema."
            raise Refused(400, "unsupported_value", message, param=param)


def check(wanted: JsonObject, text: str) -> None:
    """Raises `Refused` for an answer that is not in the form. Blocks; for a thread."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise _missed("it is not valid JSON", text) from None
    match wanted:
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            try:
                flaw = next(_validator(schema).iter_errors(answer), None)
            except Exception as error:
                raise _missed(f"its schema cannot be followed ({type(error).__name__})", text) from error
            if flaw is not None:
                raise _missed(f"{flaw.json_path}: {flaw.message[:300]}", text)
        case _ if not isinstance(answer, dict):
            raise _missed("it is not a JSON object", text)


def _missed(why: str, text: str) -> Refused:
    message = f"The model's answer is not in the form asked for: {why}. It said: {text[:500]}"
    return Refused(424, "response_format_missed", message, param="response_format", headers={"x-should-retry": "false"})


def _refuse_unusable(schema: dict[str, JsonValue], param: str) -> None:
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError) as error:
        reason = getattr(error, "message", "it is nested too deeply")
        raise Refused(400, "invalid_value", f"This is not a JSON Schema: {reason[:300]}", param=param) from error


def _validator(schema: Any) -> Any:
    """Fetches nothing, and leaves patterns alone: whoever writes one can make it run for ever."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from referencing import Registry

    left, known = MAX_REFERENCES, Draft202012Validator.VALIDATORS

    def follow(validator: Any, ref: Any, instance: Any, whole: Any) -> Iterator[Any]:
        nonlocal left
        left -= 1
        if left < 0:
            raise RecursionError
        yield from known["$ref"](validator, ref, instance, whole)

    def additional(validator: Any, allowed: Any, instance: Any, whole: Any) -> Iterator[Any]:
        if "patternProperties" not in whole:
            yield from known["additionalProperties"](validator, allowed, instance, whole)

    unchecked = dict.fromkeys(("pattern", "patternProperties", "unevaluatedProperties", "$dynamicRef"), _unchecked)
    bounded = extend(Draft202012Validator, {**unchecked, "$ref": follow, "additionalProperties": additional})
    return bounded(schema, registry=Registry())


def _unchecked(_validator: Any, _value: Any, _instance: Any, _whole: Any) -> Iterator[Any]:
    return iter(())
