"""The rule for tool calls: which run by themselves, which need a person's approval, and which never run."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias, assert_never

from gateway.domain.conversation.tools import Caller, Change, ToolClass, ToolFailed
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label


@dataclass(frozen=True, slots=True)
class Act:
    """A tool call that needs an approval, with exactly these arguments and this effect."""

    tool: str
    arguments: JsonObject
    kind: ToolClass
    change: Change


Ask: TypeAlias = Callable[[Act, Caller], Awaitable[JsonObject]]
"""Stores the question whether a call may run. Returns the result of the call for the model, such as "waiting"."""
OwnWords: TypeAlias = Callable[[Caller, str], Awaitable[bool]]
"""Whether the person wrote this value themselves in the caller's conversation, word for word."""


async def nobody(_act: Act, _caller: Caller) -> JsonObject:
    """An `Ask` for runs in which no person can be asked: raise `ToolFailed`."""
    raise ToolFailed(
        "not_allowed", "This needs a person's approval, and nobody can be asked here; nothing was changed."
    )


async def no_own_words(_caller: Caller, _value: str) -> bool:
    """An `OwnWords` for runs without a stored conversation."""
    return False


@dataclass(frozen=True, slots=True)
class Policy:
    """How the tools of one person decide and ask. `own` is the trust label of that person's own words."""

    own: Label
    ask: Ask = nobody
    is_own_words: OwnWords = no_own_words
    always_asks: bool = False
    """Whether every act needs an approval, even in a run that has read trusted text only."""


class Decision(Enum):
    """The verdict on a call."""

    ALLOW = auto()
    ASK = auto()
    REFUSE = auto()


def decide(kind: ToolClass | None, session: Label, own: Label, *, own_words: bool = False) -> Decision:
    """The verdict on a call of this class in a session with this label.

    A session is tainted if it has read text that is trusted less than the person it works for (`own`). It may still
    read, and write what carries its label along; any other act could be somebody else's wish. `own_words` means that
    the person wrote every argument, word for word, so no other text speaks in the call. A tool without a class never
    runs in a tainted session.
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


def argument_values(arguments: Json) -> Iterator[str]:
    """Yield every value in the arguments of a call as text, at any depth; keys come from the tool and are left out."""
    match arguments:
        case Mapping():
            for value in arguments.values():
                yield from argument_values(value)
        case list() | tuple():
            for value in arguments:
                yield from argument_values(value)
        case None:
            pass
        case _:
            yield str(arguments)
