"""Plans: calls that a model writes down before it has read anything, and where the value of each argument is from."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import isfinite
from textwrap import indent
from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from gateway.domain.conversation.diff import written_out
from gateway.domain.conversation.tools import AnyTool, ToolArguments, ToolClass
from gateway.domain.json import Json, JsonObject

PLAN = "plan"
"""The tool's name."""
PLANNED_CALLS = "planned calls"
"""The question about several calls of a plan; no tool can have this name."""
MAX_STEPS = 20
MAX_CONTENT = 2_000
"""Characters of a value that was read and goes to somebody."""
MAX_DATE = len("2026-11-22T10:00:00+01:00")
NOTHING = "none"
"""The reply of a model that finds nothing."""
MARK = " [from other people's text]"
"""Follows content that was read, for the one who gets it."""
HOW = "Make these calls one after the other; leave out what is in values, the gateway fills it."
"""How a plan is carried out, for its model."""
UNUSABLE = frozenset({"error", "truncated", "waiting_for_approval", "running_as"})
"""Fields of results that failed, were cut, or that nobody has approved yet."""


class Source(StrEnum):
    """Where a planned value comes from."""

    WORDS = "your own words"
    CONFIRMED = "what you confirmed with the schedule"
    ROW = "the one entry of your account that your words name"
    MADE = "what an earlier step made"
    FIELD = "what a step of the plan read"
    OWN_ENTRY = "for an entry that nobody else sees"
    TYPED = "the model, before it read anything"
    OPEN = "what others may have chosen"


class Extract(ToolArguments):
    """A value to be found in a text by a model that has no tools and sees nothing else."""

    find: str = Field(min_length=1, max_length=300, description="What to find, such as: the time at which it begins")
    type: Literal["text", "number", "date"] = "text"
    choices: tuple[str, ...] = Field((), max_length=20, description="The value is one of these")

    def parse(self, reply: str) -> Json:
        """The value in the model's reply; raises `LookupError`."""
        text = reply.strip()
        with suppress(ValueError):
            if self.choices:
                return self.choices[self.choices.index(text)]
            match self.type:
                case "number" if isfinite(number := float(text)):
                    return int(number) if number.is_integer() else number
                case "date" if datetime.fromisoformat(text) and len(text) <= MAX_DATE:
                    return text
                case "text" if text and text != NOTHING:
                    return text
        raise LookupError(f"no {self.type} was found for {self.find!r}")


class Reference(ToolArguments):
    """A value in the result of an earlier step: below the one object whose field `key` is `equals`, or at the top."""

    step: int = Field(ge=1, le=MAX_STEPS)
    field: str | None = Field(None, max_length=200, description="Its path, such as events.0.id")
    key: str | None = Field(None, max_length=100, description="A field of the only object to take it from")
    equals: str | None = Field(None, max_length=500, description="What that is, in the user's words")
    extract: Extract | None = Field(None, description="Find a value in the field, where that is a longer text")
    listed: bool = Field(False, description="As a list of this one value")

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if (self.key is None) != (self.equals is None):
            raise ValueError("key and equals go together")
        return self

    @property
    def origin(self) -> str:
        """Where the value comes from, for its person."""
        entry = f" of the entry whose {self.key} is {self.equals!r}" if self.key else ""
        found = "found in " if self.extract else ""
        return f"{found}{self.field or 'all'}{entry} in step {self.step}"


class PlanStep(ToolArguments):
    """One call: arguments with fixed values, and others that the gateway fills from earlier results."""

    tool: str = Field(max_length=128)
    arguments: dict[str, JsonValue] = Field({}, description="In the user's own words")
    values: dict[str, Reference] = Field({}, description="Arguments to fill from earlier results: a name, or one.inner")

    def shown(self, roles: Mapping[str, str]) -> str:
        """The call as its person is asked to confirm it, before there are values to fill in."""
        fixed = {f"{name} ({roles.get(name, 'no role')})": value for name, value in leaves(self.arguments)}
        filled = {f"{name} ({roles[name]}), by each run": each.origin for name, each in self.values.items()}
        return indent(written_out(self.tool, fixed | filled), "  ").lstrip()

    def origins(self, roles: Mapping[str, str]) -> str:
        """Where the value of each argument comes from, for its person."""
        fixed = [
            (name, f"{json.dumps(value, ensure_ascii=False)}, as planned") for name, value in leaves(self.arguments)
        ]
        filled = [(name, reference.origin) for name, reference in self.values.items()]
        return "; ".join(f"{name} ({roles.get(name, 'no role')}): {origin}" for name, origin in (*fixed, *filled))


class PlanArguments(ToolArguments):
    """Arguments of plan."""

    steps: tuple[PlanStep, ...] = Field(min_length=1, max_length=MAX_STEPS)
    schedule: str | None = Field(
        None,
        max_length=100,
        description="Number or name: plans each run of it, if the user agrees; values: content, times",
    )

    @model_validator(mode="after")
    def _earlier_steps_only(self) -> Self:
        for number, step in enumerate(self.steps, start=1):
            if any(reference.step >= number for reference in step.values.values()):
                raise ValueError(f"step {number} refers to a step that isn't before it")
            if twice := step.values.keys() & dict(leaves(step.arguments)).keys():
                raise ValueError(f"step {number} has two values for {min(twice)}")
        return self


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call that a question is about; `base` is that of its `Change`. A call of no plan has the step 0."""

    step: int
    tool: str
    arguments: Mapping[str, object]
    act: ToolClass
    base: str


class NotYet(LookupError):
    """A value comes from a step that has no result so far."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A step that a call has filled, and the call's result, as JSON text; None while it runs.

    `last` is that step, or the last of those that the call's question is about, too.
    """

    number: int
    ordinal: int
    result: str | None
    last: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan that is still valid. `pins` are the tools as they were; `words` are the messages that it answers.

    Its person has `confirmed` the fixed values of a schedule's plan; they answer no message.
    """

    steps: Sequence[PlanStep]
    pins: Mapping[str, str]
    spent: Sequence[Spent]
    words: Sequence[str]
    confirmed: bool = False

    @property
    def _last(self) -> int:
        return max((each.last for each in self.spent), default=0)

    def was_asked(self, tool: str, given: Mapping[str, Json]) -> bool:
        """Whether an earlier call's question is about the step that this call would fill, too."""
        asked = (self.steps[place] for each in self.spent for place in range(each.number, each.last))
        return any(step.tool == tool and _agrees(step, given) for step in asked)

    def step_for(self, tool: str, given: Mapping[str, Json], ordinal: int) -> int | None:
        """The number of the step that a call fills: the next one of this tool which has these values."""
        for each in self.spent:
            if each.ordinal == ordinal:
                return each.number
        for number, step in enumerate(self.steps, start=1):
            if number > self._last and step.tool == tool and _agrees(step, given):
                return number
        return None

    def result(self, number: int) -> JsonObject:
        """The result of a step; raises `LookupError` if it can't be used, `NotYet` if there may be one later."""
        text = next((each.result for each in self.spent if each.number == number), "")
        if text is None or (not text and number > self._last):
            raise NotYet(f"step {number} comes first")
        found = json.loads(text) if text else None
        if not isinstance(found, dict) or UNUSABLE & found.keys():
            raise LookupError(f"step {number} has no result that can be used")
        return found


def _agrees(step: PlanStep, given: Mapping[str, Json]) -> bool:
    """Whether a call has no values but those of the step; what is to be filled doesn't count."""
    fixed = dict(leaves(step.arguments))
    typed = {name: value for name, value in leaves(given) if name not in step.values}
    return all(name in fixed and fixed[name] == value for name, value in typed.items())


def leaves(arguments: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """Yield the arguments of a call by name; those within an object by its name, a dot and theirs."""
    for name, value in arguments.items():
        if isinstance(value, Mapping) and value:
            yield from ((f"{name}.{inner}", each) for inner, each in leaves(value))
        else:
            yield name, value


def put(arguments: dict[str, Json], name: str, value: Json) -> None:
    """Set an argument that is named as `leaves` does."""
    first, _, rest = name.partition(".")
    if rest:
        below = arguments.get(first)
        inner = dict(below) if isinstance(below, Mapping) else {}
        put(inner, rest, value)
        value = inner
    arguments[first] = value


def pin_of(tool: AnyTool) -> str:
    """A hash of what a tool is and does, as the plan relies on it."""
    kind = tool.kind.value if isinstance(tool.kind, ToolClass) else None
    parts = [tool.name, tool.description, tool.server, tool.own_rows, kind, tool.effect, dict(tool.roles)]
    return hashlib.sha256(json.dumps([*parts, tool.parameters], default=dict).encode()).hexdigest()[:16]


def find(result: JsonObject, reference: Reference) -> tuple[JsonObject, Json]:
    """The object that a reference names in a result, and the value in it; raises `LookupError`."""
    row = result
    if reference.key is not None:
        rows = [each for each in _objects(result) if each.get(reference.key) == reference.equals]
        if len(rows) != 1:
            raise LookupError(f"{len(rows)} entries have {reference.equals!r} as {reference.key}, so none is taken")
        row = rows[0]
    if (value := at(row, reference.field or "")) in (None, "", [], {}):
        raise LookupError(f"step {reference.step} has nothing in {reference.field or 'it'}")
    return row, value


def at(value: Json, path: str) -> Json:
    """The value at a path of names and places, with dots between them; None if there is none."""
    for part in filter(None, path.split(".")):
        match value:
            case Mapping():
                value = value.get(part)
            case list() if part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            case _:
                return None
    return value


def _objects(value: Json) -> Iterator[JsonObject]:
    match value:
        case Mapping():
            yield value
            for each in value.values():
                yield from _objects(each)
        case list():
            for each in value:
                yield from _objects(each)


def is_owned(row: JsonObject, tool: AnyTool) -> bool:
    """Whether the tool's owner has said that such an entry was made or saved by the person themselves."""
    return tool.own_rows == "*" or (bool(tool.own_rows) and at(row, tool.own_rows) is True)


def link_in(value: Json) -> str:
    """The only link in a text; raises `LookupError` if there are none or several."""
    found = set(_LINK.findall(value)) if isinstance(value, str) else set()
    if len(found) != 1:
        raise LookupError(f"there are {len(found)} links in it")
    return str(found.pop())


_LINK = re.compile(r"(?:https?://|www\.)[^\s<>\"'()\[\]]*[^\s<>\"'()\[\].,;:!?]")
_DAY = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_REACHES = re.compile(r"://|www\.|@\w|\w[.。][^\W\d_]{2,}|(?:\d[\s.-]?){8,}|\b[a-z]{2}\d{2}", re.IGNORECASE)


def is_plain_content(value: Json) -> bool:
    """Whether a value is short text without a link, an address or the number of an account."""
    if not isinstance(value, str | int | float) or len(str(value)) > MAX_CONTENT:
        return False
    text = unicodedata.normalize("NFKC", str(value))
    hidden = any(unicodedata.category(char) in ("Cf", "Cc", "Co", "Cs") for char in text.replace("\n", ""))
    return not hidden and _REACHES.search(_DAY.sub("", text)) is None
