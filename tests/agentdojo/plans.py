"""Plans of user tasks: what a model would write down that knows what it will read, and worse ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from pydantic_core import to_jsonable_python

from gateway.domain.conversation.tools import ArgumentRole as Role
from gateway.domain.conversation.tools import Caller
from gateway.domain.json import Json
from gateway.domain.text.texts import is_own_words
from gateway.domain.work.plans import Extract, Plan, PlanStep, Reference, Spent, find
from tests.agentdojo.classes import CLASSES, LINKS, ROLES


@dataclass
class Kept:
    """A `PlanStore` for one turn, which answers one message."""

    words: str = ""
    steps: Sequence[PlanStep] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    spent: list[Spent] = field(default_factory=list)

    async def load(self, _caller: Caller) -> Plan | None:
        """See `PlanStore`."""
        return Plan(self.steps, self.pins, self.spent, [self.words]) if self.steps else None

    async def spend(self, caller: Caller, number: int, _arguments: str) -> bool:
        """See `PlanStore`."""
        if any(each.last >= number for each in self.spent):
            return False
        self.spent.append(Spent(number, caller.ordinal, None, number))
        return True

    def asked(self, ordinal: int, last: int) -> None:
        """Note that a call's question is about all steps up to this one."""
        self.spent = [replace(each, last=last) if each.ordinal == ordinal else each for each in self.spent]

    def ended(self, ordinal: int, result: str) -> None:
        """Note the result of a call."""
        self.spent = [replace(each, result=result) if each.ordinal == ordinal else each for each in self.spent]


@dataclass(frozen=True, slots=True)
class Planned:
    """The steps of a task's plan. `places`: which of its calls fill them, in the same order."""

    steps: Sequence[PlanStep] = ()
    places: Sequence[int] = ()

    def calls(self, truth: Sequence[FunctionCall]) -> list[FunctionCall]:
        """The calls of the task as the model makes them: it leaves out what the gateway fills in."""
        filling = dict(zip(self.places, self.steps, strict=True))
        return [_call(filling[place]) if place in filling else call for place, call in enumerate(truth)]


Worse = Callable[[Planned], Planned]


def perfect(user: Any, suite: Any) -> Planned:
    """All acts of the task, fetches of links among them, and the reads that their values come from."""
    env = user.init_environment(suite.load_and_inject_default_environment({}))
    calls, runtime = list(user.ground_truth(env)), FunctionsRuntime(suite.tools)
    results = [_result(runtime, env, call) for call in calls]
    acts = [place for place, call in enumerate(calls) if call.function in CLASSES or call.function in LINKS]
    sources = {place: _sources(user.PROMPT, calls[place], results[:place]) for place in acts}
    read = {place for found in sources.values() for place, _ in found.values()}
    places = sorted({*acts, *read})
    numbers = {place: number for number, place in enumerate(places, start=1)}
    return Planned([_step(calls[place], sources.get(place, {}), numbers) for place in places], places)


def a_step_left_out(plan: Planned) -> Planned:
    """Without its first step; what refers to that is left out, too."""
    numbers = dict[int, int]()
    for old, step in enumerate(plan.steps[1:], start=2):
        if all(each.step in numbers for each in step.values.values()):
            numbers[old] = len(numbers) + 1
    return Planned([_moved(plan.steps[old - 1], numbers) for old in numbers], [plan.places[old - 1] for old in numbers])


def a_wrong_reference(plan: Planned) -> Planned:
    """Every reference to a field that is not there."""
    return Planned([_renamed(step) for step in plan.steps], plan.places)


def _call(step: PlanStep) -> FunctionCall:
    return FunctionCall(function=step.tool, args=dict(step.arguments))


def _result(runtime: Any, env: Any, call: FunctionCall) -> Mapping[str, Json]:
    result, error = runtime.run_function(env, call.function, dict(call.args))
    return {"error": error} if error else {"result": to_jsonable_python(result, fallback=str)}


_Found = Mapping[str, tuple[int, Reference]]
"""By argument: the place of the call that its value comes from, and the reference but for its number."""


def _sources(prompt: str, call: FunctionCall, results: Sequence[Mapping[str, Json]]) -> _Found:
    """Where the values come from that are not the person's own words."""
    found, roles = dict[str, tuple[int, Reference]](), ROLES.get(call.function, {})
    for name, value in call.args.items():
        role, wanted = roles.get(name), to_jsonable_python(value)
        if role in (None, Role.CHOICE) or _said(prompt, value):
            continue
        if source := _reference(prompt, wanted, role, results):
            found[name] = source
        elif role in (Role.CONTENT, Role.TIME) and results:
            sort = "date" if role is Role.TIME else "text"
            extract = Extract(find=wanted[:300], type=sort)
            found[name] = len(results) - 1, Reference(step=1, extract=extract)
    return found


def _said(prompt: str, value: object) -> bool:
    words = [str(each) for each in value] if isinstance(value, list) else [str(value)]
    return bool(words) and is_own_words(prompt, words)


def _reference(
    prompt: str, wanted: Json, role: Role, results: Sequence[Mapping[str, Json]]
) -> tuple[int, Reference] | None:
    only = wanted[0] if isinstance(wanted, list) and len(wanted) == 1 else wanted
    for place in reversed(range(len(results))):
        for path, value, above, row in _fields(results[place]):
            if value in (wanted, only) or (role is Role.LINK and isinstance(value, str) and str(wanted) in value):
                return place, _named(prompt, results[place], path, above, row)
    return None


def _named(prompt: str, result: Mapping[str, Json], path: str, above: str, row: Mapping[str, Json]) -> Reference:
    """By the one entry that the person's words name, or else by the path."""
    inner = path.removeprefix(above).removeprefix(".")
    for key, word in row.items():
        if isinstance(word, str) and _said(prompt, word):
            reference = Reference(step=1, field=inner, key=key, equals=word)
            try:
                find(result, reference)
            except LookupError:
                continue
            return reference
    return Reference(step=1, field=path)


def _fields(
    value: Json, path: str = "", above: str = "", row: Mapping[str, Json] | None = None
) -> Iterator[tuple[str, Json, str, Mapping[str, Json]]]:
    """Yield each value with its path, and the path of the object that it is in, and that object."""
    yield path, value, above, row or {}
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in below:
        inner = f"{path}.{name}".removeprefix(".")
        yield from _fields(each, inner, *((path, value) if isinstance(value, dict) else (above, row)))


def _step(call: FunctionCall, sources: _Found, numbers: Mapping[int, int]) -> PlanStep:
    values: dict[str, Reference] = {}
    for name, (place, source) in sources.items():
        one = isinstance(call.args[name], list) and len(call.args[name]) == 1
        values[name] = source.model_copy(update={"step": numbers[place], "listed": one})
    typed = {name: to_jsonable_python(value) for name, value in call.args.items() if name not in sources}
    return PlanStep(tool=call.function, arguments=typed, values=values)


def _moved(step: PlanStep, numbers: Mapping[int, int]) -> PlanStep:
    return _with(step, lambda each: each.model_copy(update={"step": numbers[each.step]}))


def _renamed(step: PlanStep) -> PlanStep:
    return _with(step, lambda each: each.model_copy(update={"field": "nothing.there"}))


def _with(step: PlanStep, change: Callable[[Reference], Reference]) -> PlanStep:
    values = {name: change(each) for name, each in step.values.items()}
    return step.model_copy(update={"values": values})
