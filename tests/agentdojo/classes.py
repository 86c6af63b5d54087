"""The suites' tools as the product's: their classes, and their calls through its toolbox.

A class is the owner's word, never a tool's claim, so those of the suites' tools that do more than read are written here
by hand, as an owner would confirm them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime

from gateway.domain.conversation.tools import AnyTool, Caller, Labelled, Tool, ToolClass, ToolFailed
from gateway.domain.principals import Label

CLASSES: Mapping[str, ToolClass] = {
    "send_money": ToolClass.IRREVERSIBLE,
    "schedule_transaction": ToolClass.PERSIST,
    "update_scheduled_transaction": ToolClass.PERSIST,
    "update_password": ToolClass.IRREVERSIBLE,
    "update_user_info": ToolClass.PERSIST,
    "add_user_to_channel": ToolClass.SEND,
    "invite_user_to_slack": ToolClass.SEND,
    "remove_user_from_slack": ToolClass.IRREVERSIBLE,
    "send_direct_message": ToolClass.SEND,
    "send_channel_message": ToolClass.SEND,
    "post_webpage": ToolClass.SEND,
    "reserve_hotel": ToolClass.IRREVERSIBLE,
    "reserve_restaurant": ToolClass.IRREVERSIBLE,
    "reserve_car_rental": ToolClass.IRREVERSIBLE,
    "send_email": ToolClass.SEND,
    "create_calendar_event": ToolClass.SEND,
    "reschedule_calendar_event": ToolClass.SEND,
    "cancel_calendar_event": ToolClass.IRREVERSIBLE,
    "add_calendar_event_participants": ToolClass.SEND,
    "create_file": ToolClass.WRITE,
    "append_to_file": ToolClass.WRITE,
    "delete_file": ToolClass.IRREVERSIBLE,
    "delete_email": ToolClass.IRREVERSIBLE,
    "share_file": ToolClass.SEND,
}
"""By name. All others read, and what they answer is others' words; get_webpage is asked about as `web_fetch` is."""
DRIVE_SENDS: Mapping[str, ToolClass] = {
    **CLASSES,
    **{name: ToolClass.SEND for name, kind in CLASSES.items() if kind is ToolClass.WRITE},
}
"""The same, but the drive, which others share, isn't the person's own place."""
QUIET = frozenset({ToolClass.READ, ToolClass.NET, ToolClass.WRITE})
"""A call of these changes nothing outside."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):00")


def in_iso(value: object) -> object:
    """A time in the suites' own spelling, spelt another way; all else as it is."""
    if isinstance(value, str) and _TIME.fullmatch(value):
        return f"{value.replace(' ', 'T')}:00"
    return value


def as_given(value: object) -> object:
    """The value unchanged."""
    return value


def tools_of(
    runtime: FunctionsRuntime, env: Any, classes: Mapping[str, ToolClass], decided: Callable[[ToolClass], None]
) -> list[AnyTool]:
    """All tools of a suite, acting on `env`. `decided` hears the class of each call."""
    return [_tool(name, runtime, env, classes, decided) for name in runtime.functions]


def _tool(
    name: str,
    runtime: FunctionsRuntime,
    env: Any,
    classes: Mapping[str, ToolClass],
    decided: Callable[[ToolClass], None],
) -> AnyTool:
    async def run(arguments: Any, _caller: Caller) -> Labelled:
        given = {key: _in_suite(value) for key, value in arguments.model_dump(exclude_unset=True).items()}
        result, error = runtime.run_function(env, name, given)
        if error:
            raise ToolFailed("error", str(error), Label.UNTRUSTED)
        return Labelled({"result": str(result)}, Label.UNTRUSTED)

    async def kind(arguments: Any, caller: Caller) -> ToolClass:
        found = classes.get(name, ToolClass.READ)
        if name == "get_webpage":
            found = ToolClass.NET if await caller.said(arguments.url) else ToolClass.SEND
        decided(found)
        return found

    return Tool(name, name, runtime.functions[name].parameters, run, kind=kind, max_result=10_000_000)


def _in_suite(value: object) -> object:
    return _ISO.sub(r"\1 \2", value) if isinstance(value, str) and _ISO.fullmatch(value) else value
