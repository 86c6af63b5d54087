"""A tool: a name, typed arguments, a function; and the operations of a declared HTTP API, which become tools."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationInfo, field_validator

from gateway.domain.conversation.model import Image
from gateway.domain.ids import AddressId, SessionId, TaskId
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label

Arguments = TypeVar("Arguments", bound=BaseModel)


class ToolArguments(
    BaseModel, extra="forbid", frozen=True, str_strip_whitespace=True, coerce_numbers_to_str=True, defer_build=True
):
    """Arguments as models send them: a blank string counts as not given, but where something must be said."""

    @field_validator("*", mode="before")
    @classmethod
    def _blank_to_none(cls, value: object, info: ValidationInfo) -> object:
        needed = info.field_name is not None and cls.model_fields[info.field_name].is_required()
        return None if not needed and isinstance(value, str) and not value.strip() else value


class Effect(StrEnum):
    """The effect of running a call twice; decides how a resumed run treats a call without a result."""

    SAFE = "safe"
    IDEMPOTENT = "idempotent"
    LOCAL = "local"
    """It must not run twice, but all it changes is in the workspace, where the agent can look."""
    ONCE = "once"
    """It must not run twice, and only a person may be able to tell whether it ran."""

    @property
    def repeatable(self) -> bool:
        """Whether it may run twice."""
        return self in (Effect.SAFE, Effect.IDEMPOTENT)


class ToolClass(StrEnum):
    """A call's effect on the world; `agent/policy` decides by it whether the call may run."""

    READ = "read"
    WRITE = "write own"
    """Files of the workspace, words to the person themselves: what carries its label along."""
    PERSIST = "write what lasts"
    """Persona files, schedules, skills, memories: what other conversations follow."""
    NET = "reach the net"
    """Reads from an address that is configured, or that the model did not make."""
    SEND = "send elsewhere"
    """Tells others something; a GET of an address that the model made, too."""
    ACT = "act elsewhere"
    """An effect that only the server knows: even a person's own words may mean anything to it."""
    RUN = "run"
    IRREVERSIBLE = "irreversible"


class ArgumentRole(StrEnum):
    """The meaning of an argument, by which a planned value may fill it without a question; without one it asks."""

    ID = "id"
    """Names one thing of the person's own account."""
    RECIPIENT = "recipient"
    CONTENT = "content"
    TIME = "time"
    LINK = "link"
    """An address that is read."""
    CHOICE = "choice"
    """One of a few values that mean the same to everybody, such as a size."""
    AMOUNT = "amount"
    """Always asks."""


BUILT_IN = frozenset({
    "bash", "cron", "delete_file", "edit_file", "exec", "find_tools", "forget", "list_files", "memory_get",
    "memory_search", "move_file", "plan", "read_file", "remember", "search_files", "send_file", "send_message",
    "skills", "spawn", "start_task", "tasks", "todo", "web_fetch", "web_search", "write_file",
    "complete_task", "create_subtask", "handoff", "load_skill", "request_human_review", "save_intermediate_data",
    "call_in_doubt", "embed_memory", "erase_member", "erase_my_data", "export_my_data", "resume_schedule",
    "task_budget", "vouch_files",
})  # fmt: skip
"""The names of the gateway's own tools and calls, whether they are offered or not."""


def taken_name(name: str) -> str:
    """The built-in tool for which a reader could take another tool of this name; "" if there is none."""
    return _LOOKS.get(look_of(name), "")


def look_of(name: str) -> str:
    """The same for all names, of ASCII characters, that a reader could take for each other."""
    return name.casefold().translate(_ALIKE).replace("rn", "m")


_ALIKE = str.maketrans({"-": "", "_": "", "0": "o", "1": "l", "i": "l", "5": "s"})
_LOOKS = {look_of(name): name for name in BUILT_IN}


class ToolFailed(Exception):
    """The call failed; the text tells the model what was wrong and what would work. `label` is that of the text."""

    def __init__(self, error: str, message: str, label: Label) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
        self.label = label

    @classmethod
    def own(cls, error: str, message: str) -> Self:
        """A failure in the gateway's words, or in those of the call itself."""
        return cls(error, message, Label.OWNER)


@dataclass(frozen=True, slots=True)
class Labelled:
    """The result of a tool; `label` is the trust level of its content and `images`, to which the run's rises."""

    result: JsonObject
    label: Label
    images: tuple[Image, ...] = ()

    @classmethod
    def own(cls, result: JsonObject) -> Self:
        """A result in the gateway's words, or in those of the call itself."""
        return cls(result, Label.OWNER)


async def _never_said(_value: str) -> bool:
    return False


async def _no_model(_instructions: str, _text: str) -> str:
    raise ToolFailed.own("no_model", "No model can be asked here.")


def _no_tool(_name: str) -> "AnyTool | None":
    return None


@dataclass(frozen=True, slots=True)
class Caller:
    """The run that calls a tool; (`task`, `ordinal`) is the call's key, unchanged if a resumed run repeats it.

    `address` is where the run answers; None if it is unattended. `label` is the trust level of what it had read when
    the model asked for the call. `said` tells whether an address stands in what the run was asked in this
    conversation, word for word, so that the model did not make it. `fence` is passed directly before a call that has
    an effect; it raises where the run may not act any more. `check` is for the others: an outage doesn't stop them.
    """

    task: TaskId
    ordinal: int
    session: SessionId
    address: AddressId | None
    label: Label
    fence: Callable[[], Awaitable[None]] = field(compare=False)
    check: Callable[[], Awaitable[None]] = field(compare=False)
    said: Callable[[str], Awaitable[bool]] = field(default=_never_said, compare=False)
    unlisted: "Sequence[AnyTool]" = field(default=(), compare=False)
    """The gateway's own tools that the prompt doesn't list."""
    find_tool: "Callable[[str], AnyTool | None]" = field(default=_no_tool, compare=False)
    """Any tool that the run may call, by name."""
    ask_model: Callable[[str, str], Awaitable[str]] = field(default=_no_model, compare=False)
    """The reply of the run's model, without tools and conversation, to instructions and a text."""


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a call as shown to people; a yes counts only while `base` is the same.

    `base` is a hash of the contents that the call works on: of the file it changes, of the files it names. `stale`
    is told if it has become another. `quoted` is the label of memories that the preview quotes; None: it quotes none.
    """

    preview: str
    base: str = ""
    stale: str = "What this would do is different now, so nothing was done; ask again."
    quoted: Label | None = None


@dataclass(frozen=True, slots=True)
class Wording:
    """Texts that show a call while it runs and when it is done; `{path}` is the argument of that name.

    Of an argument named `url` its host is shown.
    """

    doing: str
    done: str


@dataclass(frozen=True, slots=True)
class Tool(Generic[Arguments]):
    """A tool; `run` returns its result or raises `ToolFailed`. `timeout` is in seconds, by default longer than the
    database's, so that a silent one isn't taken for a slow tool.

    A result, in whatever field its content is, says how far it is trusted. One of
    more than `max_result` characters is stored as a file, and the model sees its beginning. `kind` is the class of its
    calls, or finds that of one call; a tool without one runs for nobody who has read others' words. `lasting` shows
    what a call would do, None if nothing; without it a question shows the arguments, which suffices unless they name
    what can change. A `private` one is not there where another program asks, with a token or by a trigger. Without a
    `wording` a call is shown by the tool's name. `parameters` replaces the JSON Schema of `arguments` where the tool's
    server, not we, checks what is given. `roles` are the meanings of arguments; `server` is the same for tools of one
    account; `own_rows` is the field that is true in results for what the person themselves made, "*" if all is theirs.
    `waits` tells whether a call that a crash interrupted only waits for a person, so that it may go on.
    """

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Arguments, Caller], Awaitable[Labelled]]
    effect: Effect = Effect.SAFE
    timeout: float = 40.0
    max_result: int = 8_000
    kind: ToolClass | Callable[[Arguments, Caller], Awaitable[ToolClass]] | None = None
    lasting: Callable[[Arguments, Caller], Awaitable[Change | None]] | None = None
    private: bool = False
    wording: Wording | None = None
    parameters: JsonObject | None = None
    roles: Mapping[str, ArgumentRole] = field(default_factory=dict)
    server: str = ""
    own_rows: str = ""
    waits: Callable[[Caller], Awaitable[bool]] | None = None


AnyTool = Tool[Any]


RequestPart: TypeAlias = Literal["path", "query", "header", "body"]
"""Part of a request; an argument for the body without a name is the whole body."""


class RequestSlot(NamedTuple):
    """The place of an argument in a request, and its name there."""

    part: RequestPart
    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One of them; `name` is unique in its API, `path` is a template below the API's address."""

    name: str
    description: str
    method: str
    path: str
    slots: Mapping[str, RequestSlot]
    """By argument."""
    schema: JsonObject
    """JSON Schema of the arguments, as shown to models."""
    kind: ToolClass | None = None
    """As its owner confirmed it; None: by the method."""

    def kind_of(self, arguments: Mapping[str, Json]) -> ToolClass:
        """The class of a call: arguments tell the host something, though they may only be a question."""
        if self.kind is not None:
            return self.kind
        if self.method == "DELETE":
            return ToolClass.IRREVERSIBLE
        return ToolClass.NET if self.method in ("GET", "HEAD") and not arguments else ToolClass.SEND

    @property
    def required(self) -> tuple[str, ...]:
        """The arguments that a call has to have."""
        found = self.schema.get("required")
        return tuple(map(str, found)) if isinstance(found, list | tuple) else ()
