"""Runs the calls a model asks for: whatever happens, the model gets an answer."""

import asyncio
import difflib
import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gateway.agent.policy import Act, Decision, Policy, decide, values
from gateway.agent.tool_sources import FIND_TOOLS, NamedTools, ToolSource, explained_arguments, shown_specs, spec_of
from gateway.domain.conversation.diff import written_out
from gateway.domain.conversation.model import ToolCall, ToolSpec
from gateway.domain.conversation.tools import AnyTool, Caller, Change, Effect, Labelled, ToolClass, ToolFailed, Wording
from gateway.domain.conversation.transcript import Entry
from gateway.domain.errors import SupaclawError
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label
from gateway.domain.work.plans import TODO
from gateway.domain.work.trees import TREE_TOOLS

T = TypeVar("T")
ANYBODY = Policy()

Spill = Callable[[str, str, Label], Awaitable[str]]
"""Stores a text of this trust level under a proposed path and answers the path a tool can read it at."""


Watched = Callable[[], AbstractAsyncContextManager[list[str]]]
"""Surrounds each run of a tool; afterwards the list has the files in which locked text was put back."""


@asynccontextmanager
async def unwatched() -> AsyncGenerator[list[str], None]:
    """A `Watched` where there are no files."""
    yield []


Planned = Callable[[str, Caller], Awaitable[str | None]]
"""What keeps a run from calling this tool before it has written its plan; None if nothing does."""


async def unplanned(_tool: str, _caller: Caller) -> str | None:
    """A `Planned` where runs need no plan."""
    return None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The answer for the model, as JSON text."""

    text: str
    failed: bool = False
    label: Label = Label.OWNER


@dataclass(frozen=True, slots=True)
class Yes:
    """What a person has allowed: a call of this class, on contents of this `base`."""

    kind: ToolClass
    base: str


class Toolbox:
    """The tools of one agent, by name."""

    def __init__(
        self,
        tools: Sequence[AnyTool],
        spill: Spill,
        policy: Policy = ANYBODY,
        clean: Callable[[str], str] = str,
        sources: Sequence[ToolSource] = (),
        watched: Watched = unwatched,
        planned: Planned = unplanned,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise ValueError(f"two tools share a name: {sorted(tool.name for tool in tools)}")
        self._spill = spill
        self._policy = policy
        self.clean = clean
        """Takes live secrets out of what a tool brings."""
        self._watched, self._planned = watched, planned
        self.sources = sources

    def for_programs(self) -> "Toolbox":
        """Without the private ones, and those of sources."""
        return self._with([tool for tool in self._tools.values() if not tool.private])

    def for_tokens(self) -> "Toolbox":
        """None: each of them reads what is private, or acts."""
        return self._with(())

    def only(self, names: frozenset[str] | None) -> "Toolbox":
        """For a node of a task tree: the tools of these names, those of sources too; None: all but `TREE_TOOLS`."""
        kept = {*self._tools} - TREE_TOOLS if names is None else {*names, TODO}
        own = [tool for name, tool in self._tools.items() if name in kept]
        sources = self.sources if names is None else [NamedTools(source, names) for source in self.sources]
        return self._with(own, sources)

    def _with(self, tools: Sequence[AnyTool], sources: Sequence[ToolSource] = ()) -> "Toolbox":
        return Toolbox(tools, self._spill, self._policy, self.clean, sources, self._watched, self._planned)

    async def refresh(self) -> None:
        """Look for what is new at the sources; a turn does when it opens."""
        for source in self.sources:
            await source.refresh()

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What every prompt shows; always in the same order, so that provider caches hit."""
        return tuple(spec_of(tool) for tool in self._tools.values() if tool.name != FIND_TOOLS)

    def further(self, entries: Sequence[Entry]) -> tuple[ToolSpec, ...]:
        """What the next prompt of this transcript shows beside them, from the sources."""
        if not self.sources:
            return ()
        found, more = shown_specs(self.sources, entries)
        return (spec_of(self._tools[FIND_TOOLS]), *found) if more and FIND_TOOLS in self._tools else found

    @cached_property
    def wordings(self) -> dict[str, Wording]:
        """How people read a call, by the name of its tool."""
        return {tool.name: tool.wording for tool in self._tools.values() if tool.wording}

    def effect(self, name: str) -> Effect:
        """What running a call twice would do; a call of an unknown tool does nothing."""
        tool = self._tool(name)
        return tool.effect if tool else Effect.SAFE

    def once_for(self, name: str) -> float:
        """Seconds for which a call that must not run twice may be under way; 0 where it may."""
        tool = self._tool(name)
        return tool.timeout if tool and not tool.effect.repeatable else 0.0

    async def described(self, call: ToolCall, caller: Caller) -> Act | None:
        """What a call would do, for a person who says whether it runs again; None if it can't have run."""
        if (tool := self._tool(call.name)) is None:
            return None
        try:
            arguments = _parse(tool, call.arguments)
        except ToolFailed:
            return None
        given = arguments.model_dump(mode="json", exclude_unset=True)
        try:
            kind = await _guarded(tool, _class(tool, arguments, caller)) or ToolClass.ACT
            change = await _guarded(tool, _change(tool, arguments, caller))
        except ToolFailed:
            kind, change = ToolClass.ACT, None
        return Act(tool.name, given, kind, change or Change(written_out(tool.name, given)))

    async def run(self, call: ToolCall, caller: Caller, *, yes: Yes | None = None) -> ToolOutcome:
        """Never raises for what the call or the tool does; only cancellation passes.

        A call that a person has allowed runs only if it is of the class and works on the contents of then.
        """
        tool = self._tool(call.name)
        if tool is None:
            return _refusal("unknown_tool", self._suggestion(call.name))
        caller = replace(caller, said=partial(self._policy.said, caller))
        async with self._watched() as restored:
            outcome = await self._outcome(tool, call, caller, yes)
        return _told(outcome, restored) if restored else outcome

    async def _outcome(self, tool: AnyTool, call: ToolCall, caller: Caller, yes: Yes | None) -> ToolOutcome:
        try:
            arguments = _parse(tool, call.arguments)
            if yes is not None:
                await _guarded(tool, _check(tool, arguments, caller, yes))
                work = _acted(tool, arguments, caller)
            else:
                work = self._allowed(tool, arguments, caller)
            found = _labelled(await _guarded(tool, work))
            text = self.clean(_to_json(found.result))
        except ToolFailed as failure:
            return _refusal(failure.error, self.clean(failure.message), failure.label)
        if len(text) > tool.max_result:
            text = await self._spilled(tool, text, max(caller.label, found.label))
        return ToolOutcome(text, label=found.label)

    async def _allowed(self, tool: AnyTool, arguments: BaseModel, caller: Caller) -> JsonObject | Labelled:
        """The result of the call, or of the question whether it may run."""
        if TODO in self._tools and (why := await self._planned(tool.name, caller)):
            raise ToolFailed("no_plan", why)
        if act := await self.judged(tool, arguments, caller):
            return await self._policy.ask(act, caller)
        return await _acted(tool, arguments, caller)

    async def judged(self, tool: AnyTool, arguments: BaseModel, caller: Caller) -> Act | None:
        """What a person has to allow before the call runs; None if it may run. Raises `ToolFailed` if it never may."""
        kind, given = await _class(tool, arguments, caller), arguments.model_dump(mode="json", exclude_unset=True)
        label = Label.UNTRUSTED if self._policy.always_asks else caller.label
        tainted = label > self._policy.own and not self._policy.always_asks
        own_words = kind is ToolClass.SEND and tainted and bool(given) and await _all_said(given, caller)
        match decide(kind, label, self._policy.own, own_words=own_words):
            case Decision.ALLOW:
                return None
            case Decision.REFUSE:
                raise ToolFailed("not_allowed", f"{tool.name} does not say what it does, so it may not run here.")
            case Decision.ASK:
                assert kind is not None, "what has no class is never asked about"
                change = await _change(tool, arguments, caller)
                return None if change is None else Act(tool.name, given, kind, change)

    def _tool(self, name: str) -> AnyTool | None:
        """Also one of a source that no prompt shows: of an approved call only the name is known."""
        offers = (offer.tool for source in self.sources for offer in source.offers)
        return self._tools.get(name) or next((tool for tool in offers if tool.name == name), None)

    def _suggestion(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._tools, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"There is no tool {name[:64]!r}.{hint} The tools are: {', '.join(self._tools) or 'none'}."

    async def _spilled(self, tool: AnyTool, text: str, label: Label) -> str:
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        path = await _attempt(self._spill(f"tool-results/{tool.name}-{digest}.json", text, label))
        whole: dict[str, Json] = (
            {"message": f"The whole result could not be stored: {_words(path)}"}
            if isinstance(path, BaseException)
            else {"path": path, "message": "The result is long; the file at path has all of it."}
        )
        return _to_json({"truncated": True, **whole, "head": text[: tool.max_result // 2]})


async def _class(tool: AnyTool, arguments: BaseModel, caller: Caller) -> ToolClass | None:
    if tool.kind is None or isinstance(tool.kind, ToolClass):
        return tool.kind
    kind: ToolClass = await tool.kind(arguments, caller)
    return kind


async def _change(tool: AnyTool, arguments: BaseModel, caller: Caller) -> Change | None:
    if tool.lasting is None:
        return Change(written_out(tool.name, arguments.model_dump(mode="json", exclude_unset=True)))
    change: Change | None = await tool.lasting(arguments, caller)
    return change


async def _all_said(arguments: JsonObject, caller: Caller) -> bool:
    for value in values(arguments):
        if not await caller.said(value):
            return False
    return True


async def _check(tool: AnyTool, arguments: BaseModel, caller: Caller, yes: Yes) -> None:
    change = await _change(tool, arguments, caller)
    if await _class(tool, arguments, caller) is not yes.kind or (change is not None and change.base != yes.base):
        raise ToolFailed("changed", "What this would do is different now, so nothing was done; ask again.")


async def _acted(tool: AnyTool, arguments: BaseModel, caller: Caller) -> JsonObject | Labelled:
    """What the tool says; nothing is awaited between the fence and its start."""
    if tool.effect is not Effect.SAFE:
        await caller.fence()
    result: JsonObject | Labelled = await tool.run(arguments, caller)
    return result


async def _guarded(tool: AnyTool, work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(tool.timeout):
            result = await _attempt(work)
    except TimeoutError:
        message = f"{tool.name} took longer than {tool.timeout:g} s and was stopped; it may have had an effect."
        raise ToolFailed("timeout", message) from None
    if isinstance(result, ToolFailed):
        raise result
    if isinstance(result, BaseException):
        # Whoever raised an error that isn't ours may quote what it was reading.
        label = Label.OWNER if isinstance(result, SupaclawError) else Label.UNTRUSTED
        raise ToolFailed(type(result).__name__, _words(result), label) from result
    return result


def _labelled(result: JsonObject | Labelled) -> Labelled:
    return result if isinstance(result, Labelled) else Labelled(result, Label.OWNER)


async def _attempt(work: Awaitable[T]) -> T | BaseException:
    # gather hands an error over as a value, whatever its class; a cancelled turn still cancels the work and passes.
    [outcome] = await asyncio.gather(work, return_exceptions=True)
    return outcome


def _parse(tool: AnyTool, text: str) -> BaseModel:
    try:
        arguments: BaseModel = tool.arguments.model_validate_json(text.strip() or "{}")
    except ValidationError as error:
        raise ToolFailed("invalid_arguments", explained_arguments(tool.name, tool.arguments, error)) from error
    return arguments


def _told(outcome: ToolOutcome, restored: Sequence[str]) -> ToolOutcome:
    message = f"Locked text was changed and has been put back, in {', '.join(restored)}. The owner has been told."
    return replace(outcome, text=_to_json({"error": "locked", "message": message, "result": outcome.text}), failed=True)


def _refusal(error: str, message: str, label: Label = Label.OWNER) -> ToolOutcome:
    return ToolOutcome(_to_json({"error": error, "message": message}), failed=True, label=label)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _to_json(value: JsonObject) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ToolFailed("unusable_result", f"The tool ran, but its result cannot be shown: {error}") from error
    # A lone surrogate is no text any database or provider takes.
    return text.encode("utf-8", "replace").decode()


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
