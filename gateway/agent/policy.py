"""What a run may do by itself, and what a person has to allow first."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import BaseModel

from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.tools import AnyTool, Caller, Change, ToolFailed

Ask: TypeAlias = Callable[[str, JsonObject, Change, Caller], Awaitable[JsonObject]]
"""Stores the question whether a tool may be called with these arguments; answers what the model is told."""


async def nobody(_tool: str, _arguments: JsonObject, _change: Change, _caller: Caller) -> JsonObject:
    """An `Ask` where no person can be reached."""
    raise ToolFailed(
        "not_allowed", "This needs a person's approval, and nobody can be asked here; nothing was changed."
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """For whom the tools work: `own` is the trust level of that person's own words."""

    own: Label = Label.OWNER
    ask: Ask = nobody


async def needs_yes(tool: AnyTool, arguments: BaseModel, caller: Caller, own: Label) -> Change | None:
    """The change that a person has to allow before the call runs; None if it may run.

    What lasts outlives the conversation that asked for it. So a run that has read what is trusted less than the person
    for whom it lasts (`own`) needs their yes.
    """
    always = tool.always is not None and tool.always(arguments)
    if caller.label <= own and not always:
        return None
    if tool.lasting is None:
        raise ToolFailed("not_allowed", f"{tool.name} does not say whether its effect lasts, so it may not run here.")
    change: Change | None = await tool.lasting(arguments, caller)
    return change
