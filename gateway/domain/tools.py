"""A tool: a name, typed arguments, a function."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from gateway.domain.ids import AddressId, SessionId, TaskId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label

Arguments = TypeVar("Arguments", bound=BaseModel)


class ToolArguments(BaseModel):
    """Arguments as models send them: a blank string counts as not given, but where something must be said."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, coerce_numbers_to_str=True)

    @field_validator("*", mode="before")
    @classmethod
    def _blank_to_none(cls, value: object, info: ValidationInfo) -> object:
        needed = info.field_name is not None and cls.model_fields[info.field_name].is_required()
        return None if not needed and isinstance(value, str) and not value.strip() else value


class Effect(StrEnum):
    """The effect of running a call twice; decides how a resumed run treats a call without a result."""

    SAFE = "safe"
    IDEMPOTENT = "idempotent"
    ONCE = "once"


class ToolFailed(Exception):
    """The call failed; the text tells the model what was wrong and what would work. `label` is that of the text."""

    def __init__(self, error: str, message: str, label: Label = Label.OWNER) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.label = label


@dataclass(frozen=True, slots=True)
class Labelled:
    """A result with content from elsewhere; `label` is its trust level, to which the run's rises."""

    result: JsonObject
    label: Label


@dataclass(frozen=True, slots=True)
class Caller:
    """The run that calls a tool; (`task`, `ordinal`) is the call's key, unchanged if a resumed run repeats it.

    `address` is where the run answers; None if it is unattended. `label` is the trust level of what it had read when
    the model asked for the call.
    """

    task: TaskId
    ordinal: int
    session: SessionId
    address: AddressId | None
    label: Label


@dataclass(frozen=True, slots=True)
class Change:
    """What a call would change for good, as people are shown it; a yes counts only while `base` is the same."""

    preview: str
    base: str = ""


async def nothing_lasts(_arguments: BaseModel, _caller: Caller) -> Change | None:
    """For a tool none of whose calls changes anything for good."""
    return None


@dataclass(frozen=True, slots=True)
class Wording:
    """What a person reads of a call while it runs and when it is done; `{path}` is the argument of that name."""

    doing: str
    done: str


@dataclass(frozen=True, slots=True)
class Tool(Generic[Arguments]):
    """A tool; `run` returns a JSON object or raises `ToolFailed`. `timeout` is in seconds.

    A tool that returns content, in whatever field, says how far it is trusted by returning it `Labelled`. A result of
    more than `max_result` characters is stored as a file, and the model sees its beginning. `lasting` says what a call
    would change for good, None if nothing; every tool declares it, by `nothing_lasts` if none of its calls does.
    `always` tells calls that need a person's yes whatever was read before.
    A `private` one is not there where another program asks, with a token or by a trigger. Without a `wording` a call
    is shown by the tool's name.
    """

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Arguments, Caller], Awaitable[JsonObject | Labelled]]
    effect: Effect = Effect.SAFE
    timeout: float = 30.0
    max_result: int = 8_000
    lasting: Callable[[Arguments, Caller], Awaitable[Change | None]] | None = None
    always: Callable[[Arguments], bool] | None = None
    private: bool = False
    wording: Wording | None = None


AnyTool = Tool[Any]
