"""A tool: a name, typed arguments, a function."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from gateway.domain.json import JsonObject

Arguments = TypeVar("Arguments", bound=BaseModel)


class Effect(StrEnum):
    """What running a call twice would do; decides what a resumed run does with a call that has no result."""

    SAFE = "safe"
    IDEMPOTENT = "idempotent"
    ONCE = "once"


class ToolFailed(Exception):
    """The call did not work; the text is for the model: what was wrong, what would work."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


@dataclass(frozen=True, slots=True)
class Tool(Generic[Arguments]):
    """One tool; `run` answers a JSON object or raises `ToolFailed`. `timeout` is in seconds.

    An answer of more than `max_result` characters is stored as a file, and the model is shown its start.
    """

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Arguments], Awaitable[JsonObject]]
    effect: Effect = Effect.SAFE
    timeout: float = 30.0
    max_result: int = 8_000


AnyTool = Tool[Any]
