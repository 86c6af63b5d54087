"""The rule for tool calls: which run by themselves, which need a person's approval, and which never run."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from enum import Enum, auto
from textwrap import indent
from typing import TypeAlias, assert_never

from gateway.domain.conversation.diff import for_chat
from gateway.domain.conversation.tools import AnyTool, ArgumentRole, Caller, Change, ToolClass, ToolFailed
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label
from gateway.domain.work.plans import PLANNED_CALLS, AskedCall, Source


@dataclass(frozen=True, slots=True)
class Act:
    """A tool call that needs an approval, with exactly these arguments and this effect."""

    tool: str
    arguments: JsonObject
    kind: ToolClass
    change: Change


Words: TypeAlias = Sequence[str]
"""One value of a call as text: a list is one value, since the choice and order of its items says something, too.

Empty for what no words can say: null, and objects, whose names could spell anything by their nesting.
"""
Ask: TypeAlias = Callable[[Act, Caller], Awaitable[JsonObject]]
"""Stores the question whether a call may run. Returns the result of the call for the model, such as "waiting"."""
Said: TypeAlias = Callable[[Caller, str], Awaitable[bool]]
"""Whether the person wrote this address themselves in the caller's conversation, so that reading it tells little."""
PassUnasked: TypeAlias = Callable[[Caller, Sequence[Words] | None], Awaitable[bool]]
"""Notes that a call which sends or changes something outside runs without a question.

With words it does so only if one message that is being answered has all of them, as its person wrote it, and no other
such call has passed in this turn. Returns whether the call may pass.
"""


async def nobody(_act: Act, _caller: Caller) -> JsonObject:
    """An `Ask` for runs in which no person can be asked: raise `ToolFailed`."""
    message = "This needs a person's approval, and nobody can be asked here; nothing was changed."
    raise ToolFailed.own("not_allowed", message)


async def never_said(_caller: Caller, _value: str) -> bool:
    """A `Said` for runs without a stored conversation."""
    return False


async def no_message(_caller: Caller, words: Sequence[Words] | None) -> bool:
    """A `PassUnasked` for runs that answer no message."""
    return words is None


@dataclass(frozen=True, slots=True)
class Policy:
    """How the tools of one person decide and ask. `own` is the trust label of that person's own words."""

    own: Label
    ask: Ask = nobody
    said: Said = never_said
    pass_unasked: PassUnasked = no_message
    fork: bool = False
    """Whether the run repeats another one: every act needs an approval, whatever was read or granted."""


class Decision(Enum):
    """The verdict on a call."""

    ALLOW = auto()
    ASK = auto()
    REFUSE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that the verdict on a call depends on: `tests/security/test_policy.py` tries every combination."""

    kind: ToolClass | None
    label: Label
    """Of all that the run has read."""
    own: Label
    """Of the words of the person whom it works for."""
    attended: bool
    """Whether it answers a chat."""
    fork: bool = False
    written: bool = False
    """Whether the model wrote the call as text."""
    worded: bool = False
    """Whether `PassUnasked` let its words pass."""
    granted: bool = False
    """Whether its person allowed exactly this call in advance."""
    slots: "Slots" = ()
    """The arguments of a call that fills a step of a plan."""

    @property
    def planned(self) -> bool:
        """Whether a plan that was made before anything was read settles all that the call says.

        Where nobody attends its person has confirmed all values but content and times.
        """
        return bool(self.slots) and all(
            source in FITTING[role] and (self.attended or source is Source.CONFIRMED or role in OPEN_LATER)
            for role, source in self.slots
        )

    @property
    def clean(self) -> bool:
        """Whether nothing that the run has read is trusted less than its person."""
        return self.label <= self.own and not self.fork


Slot: TypeAlias = tuple[ArgumentRole | None, Source]
"""The role of an argument of a planned call, and where its value comes from."""
Slots: TypeAlias = Collection[Slot]


@dataclass(frozen=True, slots=True)
class FilledCall:
    """A call: its arguments as JSON text, and where their values come from if it fills a step of a plan.

    `step` is 0 if it fills none. `first`: no earlier call of the plan has acted.
    """

    arguments: str
    sources: Mapping[str, Slot] = field(default_factory=dict)
    step: int = 0
    first: bool = False
    following: Callable[[], AsyncIterator[tuple[AnyTool, "FilledCall"]]] | None = None
    """The calls of the next steps, as long as their values are known."""

    @property
    def slots(self) -> Slots:
        """Those of its arguments."""
        return tuple(self.sources.values())

    def why_asked(self, kind: ToolClass) -> str:
        """The arguments that need a question, if it fills a step, or else its class."""
        found = [
            f"{name} ({role or 'no role'}): {source if FITTING[role] else 'always asks'}"
            for name, (role, source) in self.sources.items()
            if source not in FITTING[role]
        ]
        return "; ".join(found) or f"its class: {kind}"


@dataclass(frozen=True, slots=True)
class PlannedAct:
    """A call of a plan that would act; `why` it needs a question, "" if it needs none."""

    call: AskedCall
    preview: str
    why: str


def together(planned: Sequence[PlannedAct]) -> Act | None:
    """One act of several calls, for one question; None if none of them needs one, or if a chat can't show it whole."""
    reasons = [each.why and f", because of {each.why}" for each in planned]
    shown = [
        f"Step {each.call.step}{why}\n{indent(each.preview, '  ')}" for each, why in zip(planned, reasons, strict=True)
    ]
    if len(planned) < 2 or not any(reasons) or for_chat(preview := "\n".join(shown))[1]:
        return None
    return Act(PLANNED_CALLS, {"calls": [asdict(each.call) for each in planned]}, ToolClass.ACT, Change(preview))


FITTING: Mapping[ArgumentRole | None, Set[Source]] = {
    ArgumentRole.ID: {Source.WORDS, Source.CONFIRMED, Source.ROW, Source.MADE},
    ArgumentRole.RECIPIENT: {Source.WORDS, Source.CONFIRMED, Source.ROW},
    ArgumentRole.CONTENT: {*Source} - {Source.TYPED, Source.OPEN},
    ArgumentRole.TIME: {Source.WORDS, Source.CONFIRMED, Source.OWN_ENTRY},
    ArgumentRole.LINK: {Source.WORDS, Source.CONFIRMED, Source.FIELD},
    ArgumentRole.CHOICE: {Source.WORDS, Source.CONFIRMED, Source.TYPED},
    ArgumentRole.AMOUNT: frozenset(),
    None: frozenset(),
}
"""The sources from which a planned call may take a value without a question."""
OPEN_LATER = frozenset({ArgumentRole.CONTENT, ArgumentRole.TIME})
"""Roles of arguments that name nobody: the plan of a schedule may leave them open."""


def decide(case: Case) -> Decision:
    """The verdict on one call.

    A run that has read text trusted less than its person may still read, and write what carries its label along; any
    other act could be somebody else's wish, unless the person worded it, or planned it. A call that was written as text
    may be copied from what was read, so it may only read then. Commands are the owner's alone. A tool without a class
    never runs in such a run.
    """
    match case.kind:
        case None:
            return Decision.ALLOW if case.clean else Decision.REFUSE
        case ToolClass.RUN if case.own is not Label.OWNER:
            return Decision.REFUSE
        case ToolClass.READ:
            return Decision.ALLOW
        case ToolClass.WRITE | ToolClass.NET:
            free = case.label <= case.own or not case.written
        case ToolClass.SEND:
            wanted = (case.worded and case.attended) or case.planned
            free = case.clean or (wanted and not (case.fork or case.written))
        case ToolClass.ACT:
            free = case.clean or (case.planned and not (case.fork or case.written))
        case ToolClass.PERSIST | ToolClass.RUN:
            free = case.clean
        case ToolClass.IRREVERSIBLE:
            free = False
        case _:
            assert_never(case.kind)
    return Decision.ALLOW if free or (case.granted and not case.fork) else Decision.ASK


LEAVES = frozenset({ToolClass.SEND, ToolClass.ACT})
"""Classes that send or change something outside, and may run without a question."""


def words_of(arguments: JsonObject, named: Collection[str]) -> Iterator[Words]:
    """Yield all that the arguments of a call say: each value, and each name that the tool doesn't declare (`named`)."""
    for name, value in arguments.items():
        if name not in named:
            yield (name,)
        yield _words(value)


def _words(value: Json) -> Words:
    match value:
        case list() | tuple() if not any(isinstance(item, Mapping | list | tuple) for item in value):
            return [_text(item) for item in value]
        case None | Mapping() | list() | tuple():
            return ()
        case _:
            return (_text(value),)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
