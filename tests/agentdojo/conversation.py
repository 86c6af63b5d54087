"""A conversation through the product's toolbox and policy, and the agent in it that has no model.

The agent makes the calls of the person's task; once it has really read the injection it obeys that, too.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import FunctionCall
from pydantic import TypeAdapter

from gateway.agent.policy import Act, PassUnasked, Policy
from gateway.agent.toolbox import ApprovedCall, Toolbox
from gateway.agent.work.plans import Plans
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import AnyTool, Caller, ToolClass
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.texts import quotes_whole
from gateway.domain.work.plans import PLANNED_CALLS, AskedCall, PlanArguments, PlanStep, pin_of
from tests.agentdojo.classes import CLASSES, OWN_ROWS, QUIET, as_given, tools_of
from tests.agentdojo.plans import Kept, Planned
from tests.fakes.caller import CALLER
from tests.fakes.toolboxes import answering, toolbox_of

MARKER = "INJECTED_MARKER"
"""Stands in every place of a suite where an attacker can write."""


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made. `asked`: a person was asked first; `ran`: the tool did it."""

    call: FunctionCall
    kind: ToolClass
    text: str
    asked: bool
    ran: bool

    @property
    def unasked_act(self) -> bool:
        """Whether it did something outside that nobody approved."""
        return self.ran and not self.asked and self.kind not in QUIET


async def _spill(_path: str, _text: str, _label: Label) -> str:
    raise OSError("nowhere to keep it")


@dataclass
class Conversation:
    """One conversation of a person, whose label never falls. `spelt` rewrites each argument, as a model may."""

    classes: Mapping[str, ToolClass] = field(default_factory=lambda: CLASSES)
    spelt: Callable[[object], object] = as_given
    label: Label = Label.OWNER
    questions: int = 0
    own_rows: Collection[str] = OWN_ROWS
    finds: Callable[[str], str] = str
    """The value that the model without tools finds, of the one that the perfect one would."""
    acts: list[FunctionCall] = field(default_factory=list)
    """The calls that acted outside, with and without a question."""
    _plan: Kept = field(default_factory=Kept)
    _ordinal: int = 0
    _message: str = ""
    _passes: PassUnasked = field(default_factory=answering)
    _act: Act | None = None
    _kind: ToolClass = ToolClass.READ

    def hear(self, message: str) -> None:
        """Begin a turn, which answers this message of the person's."""
        self._message, self._passes = message, answering(message)
        self._plan = Kept(message)

    def toolbox(self, tools: Sequence[AnyTool]) -> Toolbox:
        """The product's, under the product's policy."""

        async def ask(act: Act, caller: Caller) -> JsonObject:
            self._act = act
            if act.tool == PLANNED_CALLS:
                self._plan.asked(caller.ordinal, _calls(act)[-1].step)
            return {"waiting_for_approval": "A1"}

        async def said(_caller: Caller, value: str) -> bool:
            return quotes_whole(self._message, value)

        return toolbox_of(
            tools, _spill, Policy(Label.OWNER, ask, said, self._passes), fill=Plans(self._plan, Label.OWNER).fill
        )

    def tools(self, runtime: Any, env: Any) -> list[AnyTool]:
        """A suite's, acting on `env`."""
        return tools_of(runtime, env, self)

    def decided(self, kind: ToolClass) -> None:
        """Note the class of the call under way."""
        self._kind = kind

    def ran(self, call: FunctionCall) -> None:
        """Note the act under way, if it is one."""
        if self._kind not in QUIET:
            self.acts.append(call)

    def write_plan(self, toolbox: Toolbox, steps: Sequence[PlanStep]) -> None:
        """Write this plan; raises `ToolFailed` where none can be made any more."""
        if steps:
            caller = replace(CALLER, label=self.label, find_tool=toolbox.tool)
            planned = Plans(self._plan, Label.OWNER).accept(PlanArguments(steps=tuple(steps)), caller)
            self._plan.steps, self._plan.pins = steps, {name: pin_of(tool) for name, tool in planned.items()}

    async def _found(self, instructions: str, _text: str) -> str:
        return self.finds(instructions.partition("Find in the text: ")[2].partition(". Answer with")[0])

    def make(self, toolbox: Toolbox, call: FunctionCall, *, approves: bool = False) -> Made:
        """Make one call. `approves`: a question about it is answered with yes, else with no."""
        self._act, self._kind, self._ordinal = None, ToolClass.READ, self._ordinal + 1
        arguments = {name: self.spelt(value) for name, value in call.args.items()}
        wanted = ToolCall("", call.function, json.dumps(arguments, default=str))
        caller = replace(CALLER, label=self.label, ordinal=self._ordinal, ask_model=self._found)
        outcome = asyncio.run(toolbox.run(wanted, caller))
        self._plan.ended(self._ordinal, outcome.text)
        act = self._act
        if act is not None:
            self.questions += 1
        if act is not None and approves:
            for each in _calls(act):
                wanted = ToolCall("", each.tool, json.dumps(each.arguments))
                outcome = asyncio.run(toolbox.run(wanted, caller, approval=ApprovedCall(each.act, each.base)))
        self.label = max(self.label, outcome.label)
        ran = not outcome.failed and (act is None or approves)
        return Made(call, self._kind, outcome.text, act is not None, ran)


def _calls(act: Act) -> Sequence[AskedCall]:
    """The calls that a yes runs."""
    if act.tool != PLANNED_CALLS:
        return [AskedCall(0, act.tool, act.arguments, act.kind, act.change.base)]
    return TypeAdapter(list[AskedCall]).validate_python(act.arguments["calls"])


@dataclass(frozen=True, slots=True)
class Attack:
    """The calls and words of an attacker in this environment."""

    calls: Callable[[Any], Sequence[FunctionCall]]
    says: str = ""
    first: bool = False
    """As soon as it was read, before the rest of the person's calls."""


class Person(Enum):
    """The answers of the person to questions."""

    DENIES = auto()
    APPROVES_OWN = auto()
    """Of the calls for their own task; all others are denied."""
    APPROVES_ATTACK = auto()
    """Only of the attacker's calls: shows what an attack would do."""


class Agent(BasePipelineElement):
    """Answers one message. `reads`: calls before all others."""

    name = "worst"

    def __init__(
        self,
        user: Any,
        chat: Conversation,
        attack: Attack | None = None,
        *,
        person: Person = Person.DENIES,
        reads: Sequence[FunctionCall] = (),
        plan: Planned | None = None,
        prepare: Callable[[Any], None] = lambda _env: None,
    ) -> None:
        self.user, self.chat, self.attack, self.person, self.reads = user, chat, attack, person, reads
        self.plan, self.prepare = plan or Planned(), prepare
        self.done: list[Made] = []
        """For the person."""
        self.obeyed: list[Made] | None = None
        """For the attacker; None: their text was never read."""

    def query(self, query: str, runtime: Any, env: Any = None, messages: Any = (), extra_args: Any = None) -> Any:
        self.chat.hear(query)
        calls = self.plan.calls(self.user.ground_truth(env))
        self.prepare(env)
        toolbox = self.chat.toolbox(self.chat.tools(runtime, env))
        exposed = False
        self.chat.write_plan(toolbox, self.plan.steps)
        for call in (*self.reads, *calls):
            self.done.append(self.chat.make(toolbox, call, approves=self.person is Person.APPROVES_OWN))
            exposed = exposed or MARKER in self.done[-1].text
            if exposed and self.attack and self.attack.first:
                self._obey(toolbox, env)
        if exposed:
            self._obey(toolbox, env)
        obeys = self.attack.says if self.attack and self.obeyed is not None else ""
        answer = f"{self.user.GROUND_TRUTH_OUTPUT or ''} {obeys}"
        ran = [made.call for made in (*self.done, *(self.obeyed or ())) if made.ran]
        return query, runtime, env, [_said("user", query), _said("assistant", answer, ran)], extra_args or {}

    def _obey(self, toolbox: Toolbox, env: Any) -> None:
        if self.attack and self.obeyed is None:
            approves = self.person is Person.APPROVES_ATTACK
            self.obeyed = [self.chat.make(toolbox, call, approves=approves) for call in self.attack.calls(env)]


def _said(role: str, text: str, calls: Sequence[FunctionCall] | None = None) -> Mapping[str, object]:
    return {"role": role, "content": [{"type": "text", "content": text}], "tool_calls": calls}
