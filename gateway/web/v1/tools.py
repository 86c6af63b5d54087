"""The tools that a client runs itself: described here, called by the model, handed back to the client."""

import json
import re
from collections.abc import Collection

from pydantic import JsonValue

from gateway.domain.conversation.model import ToolCall, ToolSpec
from gateway.domain.text.texts import storable
from gateway.web.http.errors import Refused

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_PARAMETERS: dict[str, JsonValue] = {"type": "object", "properties": {}}


def tools_of(value: JsonValue) -> tuple[ToolSpec, ...]:
    """The functions on offer, in the form of either API; raises `Refused`."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise _invalid("tools", f"'tools' must be a list of {MAX_TOOLS} tools at most.")
    found = tuple(_tool(item, f"tools[{at}]") for at, item in enumerate(value))
    if len({tool.name for tool in found}) != len(found):
        raise _invalid("tools", "Two tools have the same name.")
    return found


def choice_of(value: JsonValue, tools: Collection[ToolSpec]) -> tuple[bool, str | None]:
    """Whether any tool may be called, and which one must be, as `ClientOptions` says it; raises `Refused`."""
    match value:
        case None | "auto":
            return True, None
        case "none":
            return False, None
        case "required" if tools:
            return True, ""
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)} if any(
            tool.name == name for tool in tools
        ):
            return True, name
        case _:
            raise _invalid("tool_choice", "'tool_choice' must be none, auto, required or one of the request's tools.")


def refuse_clash(tools: Collection[ToolSpec], own: Collection[str]) -> None:
    """Raises `Refused` if a client's tool would shadow one of ours."""
    for tool in tools:
        if tool.name in own:
            message = f"The agent has a tool {tool.name} of its own; give yours another name, or use a plain token."
            raise Refused(400, "tool_name_taken", message, param="tools")


def call_of(id: JsonValue, function: JsonValue, param: str) -> ToolCall:
    """A call that the client was handed before; raises `Refused`."""
    match function:
        case {"name": str(name), "arguments": str(arguments)} if isinstance(id, str) and id:
            return ToolCall(storable(id), storable(name), storable(arguments))
        case _:
            raise _invalid(param, "A call needs an id, and a name and arguments as texts.")


def _tool(value: JsonValue, param: str) -> ToolSpec:
    function = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(value, dict) or value.get("type") != "function" or not isinstance(function, dict):
        raise Refused(400, "unsupported_value", "Only tools of type function are supported.", param=f"{param}.type")
    name, description = function.get("name"), function.get("description") or ""
    parameters = function.get("parameters") or _NO_PARAMETERS
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _invalid(f"{param}.name", "A tool's name has 1 to 64 letters, digits, _ or -.")
    if not isinstance(description, str) or not isinstance(parameters, dict):
        raise _invalid(param, "A tool's description is a text, and its parameters are a JSON Schema object.")
    return ToolSpec(name, storable(description), _clean(parameters))


def _clean(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """With no character that a provider refuses; half a surrogate pair is one."""
    plain: dict[str, JsonValue] = json.loads(storable(json.dumps(schema, ensure_ascii=False)))
    return plain


def _invalid(param: str, message: str) -> Refused:
    return Refused(400, "invalid_value", message, param=param)
