"""Large JSON bodies, parsed so that nobody else waits for it."""

import asyncio
import json
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gateway.web.http.errors import Refused

LARGE = 256 * 1024
"""Bytes from which on a body is parsed in a thread."""
MOST_VALUES = 100_000
"""In a large body. The parser lets no other thread run, and 24 MB of empty lists take it 3 seconds."""

Result = TypeVar("Result")
Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], body: bytes) -> Model:
    """The body as this model; raises `Refused`, naming the invalid field."""
    try:
        return model.model_validate(json.loads(body))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    except (ValueError, RecursionError):
        raise Refused(400, "invalid_request", "The body is not valid JSON.") from None
    param = ".".join(map(str, problem["loc"])) or None
    if problem["type"] == "extra_forbidden":
        message = f"{param} is unknown; known are {', '.join(model.model_fields)}."
        raise Refused(400, "unknown_parameter", message, param=param)
    raise Refused(400, "invalid_request", f"{param or 'The request'}: {problem['msg']}", param=param)


async def parsed(body: bytes, parse: Callable[[bytes], Result]) -> Result:
    """`parse(body)`; raises `Refused` for a large body of too many values, however long its texts may be."""
    if len(body) <= LARGE:
        return parse(body)
    if await asyncio.to_thread(_is_crowded, body):
        message = f"The body holds too many values; a request of more than {LARGE // 1024} KB may have {MOST_VALUES:,}."
        raise Refused(400, "too_many_values", message)
    return await asyncio.to_thread(parse, body)


def _is_crowded(body: bytes) -> bool:
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * MOST_VALUES:
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) > MOST_VALUES
