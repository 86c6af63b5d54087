"""What a run may do by itself, and what a person has to allow first."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias, assert_never

from gateway.domain.conversation.tools import Caller, Change, ToolClass, ToolFailed
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label


@dataclass(frozen=True, slots=True)
class Act:
    """A call that needs a yes: exactly this, of this class."""

    tool: str
    arguments: JsonObject
    kind: ToolClass
    change: Change


Ask: TypeAlias = Callable[[Act, Caller], Awaitable[JsonObject]]
"""Stores the question whether a call may run; answers what the model is told."""
Said: TypeAlias = Callable[[Caller, str], Awaitable[bool]]
"""Whether the person wrote this value themselves in the caller's conversation, word for word."""


async def nobody(_act: Act, _caller: Caller) -> JsonObject:
    """An `Ask` where no person can be reached."""
    raise ToolFailed(
        "not_allowed", "This needs a person's approval, and nobody can be asked here; nothing was changed."
    )


async def nothing_said(_caller: Caller, _value: str) -> bool:
    """A `Said` where no conversation is kept."""
    return False


@dataclass(frozen=True, slots=True)
class Policy:
    """For whom the tools work: `own` is the trust level of that person's own words."""

    own: Label = Label.OWNER
    ask: Ask = nobody
    said: Said = nothing_said
    always_asks: bool = False
    """Whether every act is asked about, whatever the run has read and whoever said it."""


class Decision(Enum):
    """What becomes of a call."""

    ALLOW = auto()
    ASK = auto()
    REFUSE = auto()


def decide(kind: ToolClass | None, session: Label, own: Label, *, own_words: bool = False) -> Decision:
    """The one rule.

    A run that has read what is trusted less than the person it works for (`own`) may read and write what carries its
    label along; anything else it does may be another's wish. `own_words`: every argument is that person's, word for
    word, so nothing that was read speaks in the call.
    """
    if kind is ToolClass.IRREVERSIBLE:
        return Decision.ASK
    if session <= own:
        return Decision.ALLOW
    match kind:
        case None:
            return Decision.REFUSE
        case ToolClass.READ | ToolClass.WRITE | ToolClass.NET:
            return Decision.ALLOW
        case ToolClass.SEND:
            return Decision.ALLOW if own_words else Decision.ASK
        case ToolClass.PERSIST | ToolClass.ACT | ToolClass.RUN:
            return Decision.ASK
        case _:
            assert_never(kind)


def values(arguments: Json) -> Iterator[str]:
    """Yield every value in the arguments of a call, as text; keys are the tool's own."""
    if isinstance(arguments, Mapping):
        for value in arguments.values():
            yield from values(value)
    elif isinstance(arguments, str):
        yield arguments
    elif isinstance(arguments, list | tuple):
        for value in arguments:
            yield from values(value)
    elif arguments is not None:
        yield str(arguments)
