"""Tools as a prompt shows them: the schemas of their arguments, and the sources of tools that come and go."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.domain.conversation.model import ToolSpec
from gateway.domain.conversation.tools import AnyTool
from gateway.domain.conversation.transcript import Entry, ToolIntent, ToolResult
from gateway.domain.json import JsonObject


def parameters_of(arguments: type[BaseModel]) -> JsonObject:
    """Without titles, class docstrings and references; an optional field is shown as its plain type.

    That no other fields are allowed is checked, not told: every prompt would pay for it.
    """
    return _made_once(arguments)


def explained_arguments(tool: str, arguments: type[BaseModel], error: ValidationError) -> str:
    """What is wrong with the arguments of a call, as the model is told."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    if details[0]["type"] == "json_invalid":
        return f"The arguments are not valid JSON ({details[0]['msg']}); send one JSON object."
    faults = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in details[:5])
    return f"{faults}. {tool} takes: {', '.join(arguments.model_fields) or 'nothing'}."


@cache
def _made_once(arguments: type[BaseModel]) -> JsonObject:
    schema = arguments.model_json_schema()
    return _compact(schema, schema.get("$defs", {}))


def _compact(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    schema = _resolved(schema, definitions)
    small = {key: _value(key, value, definitions) for key, value in schema.items() if key not in {"title", "$defs"}}
    if small.get("additionalProperties") is False:
        del small["additionalProperties"]
    if "properties" in small:
        small.pop("description", None)
    if small.get("default", ...) is None:
        del small["default"]
    return small


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        own = {key: value for key, value in schema.items() if key != "$ref"}
        return {**{key: value for key, value in target.items() if key != "description"}, **own}
    match [option for option in schema.get("anyOf", []) if option.get("type") != "null"]:
        case [only]:
            own = {key: value for key, value in schema.items() if key != "anyOf"}
            return {**_resolved(only, definitions), **own}
    return schema


def _value(key: str, value: Any, definitions: Mapping[str, Any]) -> Any:
    match key, value:
        case "properties", dict():
            return {name: _compact(field, definitions) for name, field in value.items()}
        case (("items" | "additionalProperties"), dict()):
            return _compact(value, definitions)
        case (("anyOf" | "oneOf" | "allOf" | "prefixItems"), list()):
            return [_compact(option, definitions) for option in value]
    return value


FIND_TOOLS = "find_tools"
MAX_TOOLS, MAX_CHARS = 20, 6_000
"""Tools of sources that a prompt shows unasked, and characters of their descriptions and arguments."""
MAX_FOUND = 40
"""The newest of those that a conversation has found: providers take 128 tools at most."""


class AnyArguments(BaseModel):
    """Arguments that a server checks, by the `parameters` of its tool."""

    model_config = ConfigDict(extra="allow", frozen=True)


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool of a source. The owner has vouched for the words of a `confirmed` one; others taint who reads them."""

    tool: AnyTool
    confirmed: bool = True


class ToolSource(Protocol):
    """Where tools of one person come from: servers, files. Their names collide with those of no other source."""

    @property
    def offers(self) -> Sequence[Offer]:
        """Those that may be called, by name, as of the last `refresh` or `discover`."""
        ...

    @property
    def more(self) -> bool:
        """Whether `discover` may find further ones."""
        ...

    async def refresh(self) -> None:
        """Look at what is stored here; called as a turn opens, so it asks nobody elsewhere."""
        ...

    async def discover(self) -> Sequence[str]:
        """Look everywhere; answers what went wrong, a line each, in our words. Never raises for what a server does."""
        ...


@dataclass(frozen=True, slots=True)
class NamedTools:
    """Those of a source that an agent's file names, and no others."""

    source: ToolSource
    names: frozenset[str]

    @property
    def offers(self) -> Sequence[Offer]:
        """As `ToolSource` says."""
        return [offer for offer in self.source.offers if offer.tool.name in self.names]

    @property
    def more(self) -> bool:
        """Nothing that isn't named is looked for."""
        return False

    async def refresh(self) -> None:
        """As `ToolSource` says."""
        await self.source.refresh()

    async def discover(self) -> Sequence[str]:
        """As `ToolSource` says."""
        return await self.source.discover()


def spec_of(tool: AnyTool) -> ToolSpec:
    """What the model is shown of it."""
    return ToolSpec(tool.name, tool.description, tool.parameters or parameters_of(tool.arguments))


def shown_specs(sources: Sequence[ToolSource], entries: Iterable[Entry]) -> tuple[tuple[ToolSpec, ...], bool]:
    """What a prompt shows beside the tools of our own, and whether it needs `find_tools`.

    Few confirmed tools are all shown; otherwise those that the conversation has found, the oldest first, so that the
    beginning of a prompt stays the same.
    """
    offers = {offer.tool.name: offer for source in sources for offer in source.offers}
    ready = [spec_of(offer.tool) for offer in offers.values() if offer.confirmed]
    few = len(ready) <= MAX_TOOLS and sum(map(_size, ready)) <= MAX_CHARS
    listed = {spec.name: spec for spec in (ready if few else ())}
    found = [name for name in dict.fromkeys(found_in(entries)) if name in offers and name not in listed]
    listed |= {name: spec_of(offers[name].tool) for name in found[-MAX_FOUND:]}
    return tuple(listed.values()), len(ready if few else ()) < len(offers) or any(source.more for source in sources)


def tool_title(name: str) -> str:
    """The name of a source's tool for people: its server or file, and what that calls it."""
    source, _, own = name.removeprefix("mcp_").partition("_")
    return f"{source} · {own}" if own else name


def found_in(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the names that `find_tools` has answered in a transcript: a resumed run has them, too."""
    calls = set[str]()
    for entry in entries:
        match entry:
            case ToolIntent(call) if call.name == FIND_TOOLS:
                calls.add(call.id)
            case ToolResult(call_id, text) if call_id in calls:
                yield from _names(text)
            case _:
                pass


def _names(result: str) -> Iterator[str]:
    with suppress(ValueError, RecursionError):
        match json.loads(result):
            case {"tools": list(tools)}:
                yield from (str(tool["name"]) for tool in tools if isinstance(tool, dict) and "name" in tool)


def _size(spec: ToolSpec) -> int:
    return len(spec.description) + len(json.dumps(spec.parameters))
