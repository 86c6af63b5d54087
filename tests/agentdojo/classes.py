"""The suites' tools as the product's: their classes, and their calls through its toolbox.

A class is the owner's word, never a tool's claim, so those of the suites' tools that do more than read are written here
by hand, as an owner would confirm them.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from pydantic_core import to_jsonable_python

from gateway.domain.conversation.tools import (
    AnyTool,
    Caller,
    Effect,
    Labelled,
    Tool,
    ToolClass,
    ToolFailed,
)
from gateway.domain.conversation.tools import (
    ArgumentRole as Role,
)
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
ROLES: Mapping[str, Mapping[str, Role]] = {
    "add_user_to_channel": {"user": Role.RECIPIENT, "channel": Role.ID},
    "invite_user_to_slack": {"user": Role.CONTENT, "user_email": Role.RECIPIENT},
    "send_direct_message": {"recipient": Role.RECIPIENT, "body": Role.CONTENT},
    "send_channel_message": {"channel": Role.RECIPIENT, "body": Role.CONTENT},
    "post_webpage": {"url": Role.RECIPIENT, "content": Role.CONTENT},
    "get_webpage": {"url": Role.LINK},
    "send_email": {
        **dict.fromkeys(("recipients", "cc", "bcc"), Role.RECIPIENT),
        **dict.fromkeys(("subject", "body"), Role.CONTENT),
    },
    "create_calendar_event": {
        "participants": Role.RECIPIENT,
        **dict.fromkeys(("title", "description", "location"), Role.CONTENT),
        **dict.fromkeys(("start_time", "end_time"), Role.TIME),
    },
    "reschedule_calendar_event": {
        "event_id": Role.ID,
        "new_start_time": Role.TIME,
        "new_end_time": Role.TIME,
    },
    "add_calendar_event_participants": {"event_id": Role.ID, "participants": Role.RECIPIENT},
    "share_file": {"file_id": Role.ID, "email": Role.RECIPIENT, "permission": Role.CHOICE},
}
"""The meanings of arguments, as an owner would confirm them; those that are left out ask."""
LINKS = frozenset({"get_webpage"})
OWN_ROWS = frozenset({
    "search_calendar_events", "get_day_calendar_events", "search_contacts_by_name", "create_file",
})  # fmt: skip
"""Tools whose entries count as the person's own: the suites' calendars don't say who made an event."""
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


class Host(Protocol):
    """The conversation that the tools are called in."""

    classes: Mapping[str, ToolClass]
    own_rows: Collection[str]

    def decided(self, kind: ToolClass) -> None:
        """Note the class of the call under way."""
        ...

    def ran(self, call: FunctionCall) -> None:
        """Note what a tool does, with the arguments that it really has."""
        ...


def tools_of(runtime: FunctionsRuntime, env: Any, host: Host) -> list[AnyTool]:
    """All tools of a suite, acting on `env`."""
    return [_tool(name, runtime, env, host) for name in runtime.functions]


def _tool(name: str, runtime: FunctionsRuntime, env: Any, host: Host) -> AnyTool:
    async def run(arguments: Any, _caller: Caller) -> Labelled:
        given = {key: _in_suite(value) for key, value in arguments.model_dump(exclude_unset=True).items()}
        host.ran(FunctionCall(function=name, args=given))
        result, error = runtime.run_function(env, name, given)
        if error:
            raise ToolFailed("error", str(error), Label.UNTRUSTED)
        return Labelled({"result": to_jsonable_python(result, fallback=str)}, Label.UNTRUSTED)

    async def kind(arguments: Any, caller: Caller) -> ToolClass:
        found = host.classes.get(name, ToolClass.READ)
        if name in LINKS:
            found = ToolClass.NET if await caller.said(arguments.url) else ToolClass.SEND
        host.decided(found)
        return found

    return Tool(
        name,
        name,
        runtime.functions[name].parameters,
        run,
        Effect.ONCE if name in CLASSES else Effect.SAFE,
        kind=kind,
        max_result=10_000_000,
        roles=ROLES.get(name, {}),
        own_rows="*" if name in host.own_rows else "",
    )


def _in_suite(value: object) -> object:
    return _ISO.sub(r"\1 \2", value) if isinstance(value, str) and _ISO.fullmatch(value) else value
