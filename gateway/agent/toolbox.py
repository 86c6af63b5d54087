"""The toolbox: runs the tool calls of a model, and answers the model even if a call fails."""

import difflib
import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial

from pydantic import BaseModel

from gateway.agent.policy import Act, FilledCall, Policy, together
from gateway.agent.tool_sources import (
    ALWAYS_LISTED,
    FIND_TOOLS,
    NamedTools,
    ToolSource,
    can_plan,
    found_in,
    offers_of,
    short_spec,
    shown_specs,
    spec_of,
)
from gateway.agent.verdicts import (
    Verdicts,
    attempted,
    change_of,
    class_of,
    error_text,
    given_in,
    limited,
    parsed,
    written_change,
)
from gateway.domain.conversation.model import Image, ToolCall, ToolSpec
from gateway.domain.conversation.tools import AnyTool, Caller, Change, Effect, Labelled, ToolClass, ToolFailed, Wording
from gateway.domain.conversation.transcript import Entry
from gateway.domain.errors import DatabaseDown
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label
from gateway.domain.work.plans import PLAN
from gateway.domain.work.todo_lists import TODO
from gateway.domain.work.trees import TREE_TOOLS

Spill = Callable[[str, str, Label], Awaitable[str]]
"""Stores a text of this label under a proposed path; returns the path at which a tool can read it."""

Watch = Callable[[], AbstractAsyncContextManager[list[str]]]
"""Surrounds each run of a tool. Afterwards the list names the files in which locked text was restored."""

TodoCheck = Callable[[str, Caller], Awaitable[str | None]]
"""Why a run may not call this tool before it has written a to-do list, for the model; None if it may."""

FillCall = Callable[[AnyTool, ToolCall, Caller], AbstractAsyncContextManager[FilledCall]]
"""Surrounds the question about a call, with the call as a plan has it. Raises `ToolFailed`."""


@asynccontextmanager
async def unwatched() -> AsyncGenerator[list[str], None]:
    """A `Watch` for tools that reach no files."""
    yield []


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of a call for the model, as JSON text."""

    text: str
    label: Label
    failed: bool = False
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A person's approval of one call: it must still be of this class, and change contents with this `base`."""

    kind: ToolClass
    base: str


@dataclass(eq=False)
class Toolbox:
    """The tools of one agent, by name.

    `clean` removes live secrets from results; `watch` restores locked text. `todo_check` is None if runs need no list.
    """

    tools: Sequence[AnyTool]
    spill: Spill
    _: KW_ONLY
    policy: Policy
    clean: Callable[[str], str]
    watch: Watch
    todo_check: TodoCheck | None
    sources: Sequence[ToolSource] = ()
    fill: FillCall | None = None
    """None where no plan can be made."""
    few: bool = False
    """Whether prompts list `ALWAYS_LISTED` only, in short, and the tools that the model has found."""

    def __post_init__(self) -> None:
        self._tools = {tool.name: tool for tool in self.tools}
        if len(self._tools) != len(self.tools):
            raise ValueError(f"two tools share a name: {sorted(tool.name for tool in self.tools)}")

    def for_programs(self) -> "Toolbox":
        """The toolbox without private tools and without the tools of sources."""
        return replace(self, tools=[tool for tool in self.tools if not tool.private], sources=())

    def for_tokens(self) -> "Toolbox":
        """The toolbox without any tool, since each of them acts or reads something private."""
        return replace(self, tools=(), sources=())

    def without(self, names: frozenset[str]) -> "Toolbox":
        """The toolbox without these tools."""
        return replace(self, tools=[tool for tool in self.tools if tool.name not in names])

    def only(self, names: frozenset[str] | None) -> "Toolbox":
        """The toolbox of a node of a task tree: the tools with these names. None: all but `TREE_TOOLS`."""
        chosen = {*self._tools} - TREE_TOOLS if names is None else {*names, TODO}
        own = [tool for tool in self.tools if tool.name in chosen]
        sources = self.sources if names is None else [NamedTools(source, names) for source in self.sources]
        return replace(self, tools=own, sources=sources)

    async def refresh(self) -> None:
        """Refresh the sources. A turn does so when it opens."""
        for source in self.sources:
            await source.refresh()

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that every prompt shows, always in the same order, so that provider caches hit."""
        if self.few:
            unlisted = {FIND_TOOLS, PLAN, *(tool.name for tool in self.unlisted)}
            return tuple(short_spec(tool) for tool in self.tools if tool.name not in unlisted)
        return tuple(spec_of(tool, Label.OWNER) for tool in self.tools if tool.name not in (FIND_TOOLS, PLAN))

    @cached_property
    def unlisted(self) -> tuple[AnyTool, ...]:
        """The tools that `specs` leaves out."""
        left = [tool for tool in self.tools if tool.name not in (*ALWAYS_LISTED, FIND_TOOLS, PLAN)]
        return tuple(left) if self.few and len(self.tools) > len(ALWAYS_LISTED) else ()

    @property
    def names(self) -> Sequence[str]:
        """The names of all tools that a prompt may show."""
        return [*self._tools, *offers_of(self.sources)]

    def source_specs(self, entries: Sequence[Entry], label: Label) -> tuple[ToolSpec, ...]:
        """The tools of sources that the next prompt of a run with this label shows, and those to find and plan them."""
        if not (self.sources or self.unlisted):
            return ()
        specs, more = shown_specs(self.sources, entries, label)
        if self.unlisted:
            found = set(found_in(entries))
            specs = (*(spec_of(tool, Label.OWNER) for tool in self.unlisted if tool.name in found), *specs)
            more = True
        if PLAN in self._tools and can_plan(self.tools, self.sources):
            specs = (spec_of(self._tools[PLAN], Label.OWNER), *specs)
        return (spec_of(self._tools[FIND_TOOLS], Label.OWNER), *specs) if more and FIND_TOOLS in self._tools else specs

    @cached_property
    def wordings(self) -> dict[str, Wording]:
        """How calls are worded for people, by the name of the tool."""
        return {tool.name: tool.wording for tool in self.tools if tool.wording}

    def effect(self, name: str) -> Effect:
        """The effect of running a call twice; none for an unknown tool."""
        tool = self.tool(name)
        return tool.effect if tool else Effect.SAFE

    def seconds_under_way(self, name: str) -> float:
        """The time limit of a call that must not run twice; 0 for a call that may."""
        tool = self.tool(name)
        return tool.timeout if tool and not tool.effect.repeatable else 0.0

    async def waits(self, name: str, caller: Caller) -> bool:
        """Whether a call that a crash interrupted has had no effect: it waits for a person, and may go on."""
        tool = self.tool(name)
        return bool(tool and tool.waits and await tool.waits(caller))

    async def describe(self, call: ToolCall, caller: Caller) -> Act | None:
        """Describe a call to the person who decides whether it runs again; None if it can't have run."""
        if (tool := self.tool(call.name)) is None:
            return None
        try:
            arguments = parsed(tool, call.arguments)
        except ToolFailed:
            return None
        try:
            kind = await limited(tool, caller, class_of(tool, arguments, caller)) or ToolClass.ACT
            change = await limited(tool, caller, change_of(tool, arguments, caller))
        except ToolFailed:
            kind, change = ToolClass.ACT, None
        return Act(tool.name, given_in(arguments), kind, change or written_change(tool, arguments))

    async def run(
        self, call: ToolCall, caller: Caller, *, approval: ApprovedCall | None = None, again: bool = False
    ) -> ToolOutcome:
        """Run a call. Errors become the outcome; only `INTERRUPTIONS` and a cancellation are raised.

        An approved call runs only if its class and the contents that it changes are still those of its approval.
        A call that runs `again` and meets an outage again, while the database works for others, has failed by itself.
        """
        tool = self.tool(call.name)
        if tool is None:
            return _refusal("unknown_tool", self._suggestion(call.name), Label.OWNER)
        caller = replace(caller, said=partial(self.policy.said, caller), unlisted=self.unlisted, find_tool=self.tool)
        async with self.watch() as restored:
            outcome = await self._outcome(tool, call, caller, approval, again)
        return _with_restored(outcome, restored) if restored else outcome

    async def _outcome(
        self, tool: AnyTool, call: ToolCall, caller: Caller, approval: ApprovedCall | None, again: bool
    ) -> ToolOutcome:
        try:
            labelled = await self._result(tool, call, caller, approval)
            text = self.clean(_to_json(labelled.result))
        except ToolFailed as failure:
            return _refusal(failure.error, self.clean(failure.message), failure.label)
        except DatabaseDown as outage:
            if not again:
                raise
            await caller.fence()  # raises in an outage
            doubt = "" if tool.effect is Effect.SAFE else "; it may have had an effect"
            return _refusal(type(outage).__name__, f"{self.clean(str(outage))}{doubt}", Label.OWNER)
        if len(text) > tool.max_result:
            text = await self._shortened(tool, text, max(caller.label, labelled.label))
        return ToolOutcome(text, labelled.label, images=labelled.images)

    async def _result(self, tool: AnyTool, call: ToolCall, caller: Caller, approval: ApprovedCall | None) -> Labelled:
        """The result of the tool, or of the question whether it may run. The tool starts right after the fence, whose
        wait for the database isn't in the tool's time.
        """
        if approval is not None:
            arguments = parsed(tool, call.arguments)
            await limited(tool, caller, _require_unchanged(tool, arguments, caller, approval))
        else:
            fill = self.fill if can_plan(self.tools, self.sources) else None
            async with fill(tool, call, caller) if fill else nullcontext(FilledCall(call.arguments)) as filled:
                arguments = parsed(tool, filled.arguments)
                if asked := await self._question(tool, arguments, caller, call.written, filled):
                    return asked
        await (caller.check if tool.effect is Effect.SAFE else caller.fence)()
        return await limited(tool, caller, tool.run(arguments, caller))

    async def _question(
        self, tool: AnyTool, arguments: BaseModel, caller: Caller, written: bool, filled: FilledCall
    ) -> Labelled | None:
        """The result of asking whether the call may run; None if it may."""
        check = self.todo_check if TODO in self._tools else None
        if check and (reason := await limited(tool, caller, check(tool.name, caller))):
            raise ToolFailed.own("no_todo", reason)
        verdicts = Verdicts(self.policy)
        planned = await verdicts.planned(tool, caller, filled)
        because = {str(each.call.step): each.why for each in planned}
        if (act := together(planned)) is None:
            required = verdicts.required_approval(tool, arguments, caller, written=written, slots=filled.slots)
            if (act := await limited(tool, caller, required)) is None:
                return None
            because = {str(filled.step): filled.why_asked(act.kind)} if filled.step else {}
        asked = await limited(tool, caller, self.policy.ask(act, caller))
        return Labelled.own({**asked, "because": because} if because else asked)

    def tool(self, name: str) -> AnyTool | None:
        """The tool with this name, also if no prompt shows it: an approved call is known by its name only."""
        offer = None if name in self._tools else offers_of(self.sources).get(name)
        return offer.tool if offer else self._tools.get(name)

    def _suggestion(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._tools, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"There is no tool {name[:64]!r}.{hint} The tools are: {', '.join(self._tools) or 'none'}."

    async def _shortened(self, tool: AnyTool, text: str, label: Label) -> str:
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        path = await attempted(self.spill(f"tool-results/{tool.name}-{digest}.json", text, label))
        whole: dict[str, Json] = (
            {"message": f"The whole result could not be stored: {error_text(path)}"}
            if isinstance(path, BaseException)
            else {"path": path, "message": "The result is long; the file at path has all of it."}
        )
        return _to_json({"truncated": True, **whole, "head": text[: tool.max_result // 2]})


async def _require_unchanged(tool: AnyTool, arguments: BaseModel, caller: Caller, approval: ApprovedCall) -> None:
    change, kind = await change_of(tool, arguments, caller), await class_of(tool, arguments, caller)
    if kind is not approval.kind or (change is not None and change.base != approval.base):
        raise ToolFailed.own("changed", (change or Change("")).stale)


def _with_restored(outcome: ToolOutcome, restored: Sequence[str]) -> ToolOutcome:
    message = f"Locked text or instructions were changed and are as before: {', '.join(restored)}. The owner was told."
    return replace(outcome, text=_to_json({"error": "locked", "message": message, "result": outcome.text}), failed=True)


def _refusal(error: str, message: str, label: Label) -> ToolOutcome:
    return ToolOutcome(_to_json({"error": error, "message": message}), label, failed=True)


def _to_json(value: JsonObject) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ToolFailed.own("unusable_result", f"The tool ran, but its result cannot be shown: {error}") from error
    # No database and no provider accepts a lone surrogate.
    return text.encode("utf-8", "replace").decode()


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
