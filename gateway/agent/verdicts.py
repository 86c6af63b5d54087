"""Verdicts on tool calls: the effect of each, and whether its person has to be asked."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gateway.agent.policy import LEAVES, Act, Case, Decision, FilledCall, PlannedAct, Policy, Slots, decide, words_of
from gateway.agent.tool_sources import explained_arguments
from gateway.domain.conversation.diff import written_out
from gateway.domain.conversation.tools import BUILT_IN, AnyTool, Caller, Change, ToolClass, ToolFailed
from gateway.domain.errors import INTERRUPTIONS, SupaclawError
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.work.plans import AskedCall

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts under one person's policy."""

    policy: Policy

    async def planned(self, tool: AnyTool, caller: Caller, filled: FilledCall) -> Sequence[PlannedAct]:
        """A call of a plan and the acts that follow at once, if it is the plan's first act or needs a question."""
        found = list[PlannedAct]()
        if filled.following and (own := await self._planned_act(tool, caller, filled)):
            found.append(own)
            if own.why or filled.first:
                async for other, each in filled.following():
                    if (act := await self._planned_act(other, caller, each)) is None:
                        break
                    found.append(act)
        return found

    async def _planned_act(self, tool: AnyTool, caller: Caller, filled: FilledCall) -> PlannedAct | None:
        """None for a call that has a question of its own, or none: it only reads, lasts, or can't be undone."""
        try:
            arguments = parsed(tool, filled.arguments)
            case = await limited(tool, caller, self._case(tool, arguments, caller, filled.slots))
            change = await limited(tool, caller, change_of(tool, arguments, caller))
        except ToolFailed:
            return None
        if case.kind not in LEAVES or change is None or tool.name in BUILT_IN:
            return None
        why = filled.why_asked(case.kind) if decide(case) is Decision.ASK else ""
        call = AskedCall(filled.step, tool.name, given_in(arguments), case.kind, change.base)
        return PlannedAct(call, change.preview, why)

    async def _case(
        self, tool: AnyTool, arguments: BaseModel, caller: Caller, slots: Slots, *, written: bool = False
    ) -> Case:
        return Case(
            kind=await class_of(tool, arguments, caller),
            label=caller.label,
            own=self.policy.own,
            attended=caller.address is not None,
            fork=self.policy.fork,
            written=written,
            slots=slots,
        )

    async def required_approval(
        self, tool: AnyTool, arguments: BaseModel, caller: Caller, *, written: bool = False, slots: Slots = ()
    ) -> Act | None:
        """The act that a person has to approve before the call runs; None if it may run.

        Raises `ToolFailed` if the call may never run here.
        """
        case = await self._case(tool, arguments, caller, slots, written=written)
        match await self._decided(case, tool, arguments, caller):
            case Decision.ALLOW:
                return None
            case Decision.REFUSE:
                why = "may run for the owner only" if case.kind else "does not say what it does, so it may not run here"
                raise ToolFailed.own("not_allowed", f"{tool.name} {why}.")
            case Decision.ASK:
                assert case.kind is not None, "a tool without a class is refused, not asked about"
                change = await change_of(tool, arguments, caller)
                return None if change is None else Act(tool.name, given_in(arguments), case.kind, change)

    async def _decided(self, case: Case, tool: AnyTool, arguments: BaseModel, caller: Caller) -> Decision:
        """The verdict; the person's own words are looked for only where they matter."""
        verdict = decide(case)
        if verdict is Decision.ALLOW and case.attended and case.kind in LEAVES:
            await self.policy.pass_unasked(caller, None)
        if verdict is not Decision.ASK or decide(worded := replace(case, worded=True)) is not Decision.ALLOW:
            return verdict
        said = list(words_of(given_in(arguments), _named(tool)))
        may_pass = said and all(said) and await self.policy.pass_unasked(caller, said)
        return decide(worded) if may_pass else verdict


async def class_of(tool: AnyTool, arguments: BaseModel, caller: Caller) -> ToolClass | None:
    """The class of a call; None for a tool that doesn't say what it does."""
    if tool.kind is None or isinstance(tool.kind, ToolClass):
        return tool.kind
    kind: ToolClass = await tool.kind(arguments, caller)
    return kind


async def change_of(tool: AnyTool, arguments: BaseModel, caller: Caller) -> Change | None:
    """The effect of a call as its person is shown it; None if it has none."""
    if tool.lasting is None:
        return written_change(tool, arguments)
    change: Change | None = await tool.lasting(arguments, caller)
    return change


def written_change(tool: AnyTool, arguments: BaseModel) -> Change:
    """The same for a call that is shown by its arguments."""
    return Change(written_out(tool.name, given_in(arguments)))


def given_in(arguments: BaseModel) -> JsonObject:
    """The arguments that the model gave."""
    return arguments.model_dump(mode="json", exclude_unset=True)


def _named(tool: AnyTool) -> Set[str]:
    """The names of arguments that the tool declares."""
    if tool.parameters is None:
        return set(tool.arguments.model_fields)
    declared = tool.parameters.get("properties")
    return set(declared) if isinstance(declared, Mapping) else set()


async def limited(tool: AnyTool, caller: Caller, work: Awaitable[T]) -> T:
    """The result of `work` within the tool's time limit; every error of the tool becomes `ToolFailed`."""
    try:
        async with asyncio.timeout(tool.timeout):
            result = await attempted(work)
    except TimeoutError:
        await caller.fence()  # raises if the database is silent, too
        message = f"{tool.name} took longer than {tool.timeout:g} s and was stopped; it may have had an effect."
        raise ToolFailed.own("timeout", message) from None
    if isinstance(result, (ToolFailed, *INTERRUPTIONS)):
        raise result
    if isinstance(result, SupaclawError):
        label = Label.UNTRUSTED if result.foreign else Label.OWNER
        raise ToolFailed(result.code or type(result).__name__, error_text(result), label) from result
    if isinstance(result, BaseException):
        # An error of other code may quote the text that it was reading.
        raise ToolFailed(type(result).__name__, error_text(result), Label.UNTRUSTED) from result
    return result


async def attempted(work: Awaitable[T]) -> T | BaseException:
    """The result of `work`, or its error."""
    # gather returns an error of any class as a value; a cancellation of the turn still cancels the work and is raised.
    [outcome] = await asyncio.gather(work, return_exceptions=True)
    return outcome


def parsed(tool: AnyTool, text: str) -> BaseModel:
    """The arguments in a JSON text; raises `ToolFailed`."""
    try:
        arguments: BaseModel = tool.arguments.model_validate_json(text.strip() or "{}")
    except ValidationError as error:
        raise ToolFailed.own("invalid_arguments", explained_arguments(tool.name, tool.arguments, error)) from error
    return arguments


def error_text(error: BaseException) -> str:
    """The error's own text, or its name."""
    return str(error) or type(error).__name__
