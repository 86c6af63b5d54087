"""Tool specifications for prompts, and the sources of tools that come and go, such as MCP servers and tool files."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.domain.conversation.model import ToolSpec
from gateway.domain.conversation.tools import BUILT_IN, AnyTool, taken_name
from gateway.domain.conversation.transcript import Entry, ToolIntent, ToolResult
from gateway.domain.json import Schema, json_or_text, simplified
from gateway.domain.principals import Label


def _schema_of(arguments: type[BaseModel]) -> Schema:
    schema = arguments.model_json_schema()
    return simplified(schema, schema.get("$defs", {}), _compact)


parameters_of: Callable[[type[BaseModel]], Schema] = cache(_schema_of)
"""The JSON schema of a tool's arguments, as short as possible: every prompt pays for it.

Titles, class docstrings, references, bounds of lengths, empty defaults and `additionalProperties: false` are left out;
an optional field is shown with its plain type. Calls that break a bound or have other fields are refused when parsed.
"""


def explained_arguments(tool: str, arguments: type[BaseModel], error: ValidationError) -> str:
    """An error in the arguments of a call, explained to the model."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    if details[0]["type"] == "json_invalid":
        return f"The arguments are not valid JSON ({details[0]['msg']}); send one JSON object."
    faults = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in details[:5])
    return f"{faults}. {tool} takes: {', '.join(arguments.model_fields) or 'nothing'}."


_UNSAID = ("title", "$defs", "minLength", "maxLength", "minItems", "maxItems")
_UNSAID_IF_EMPTY = ("additionalProperties", "default")


def _compact(part: Schema) -> Schema:
    left_out = (*_UNSAID, "description") if "properties" in part else _UNSAID
    return {key: value for key, value in part.items() if key not in left_out and (value or key not in _UNSAID_IF_EMPTY)}


def _bare(part: Schema) -> Schema:
    return {key: value for key, value in part.items() if key not in {"description", "default"}}


FIND_TOOLS = "find_tools"
MAX_TOOLS, MAX_CHARS = 20, 6_000
"""At most this many tools of sources, and characters of their specifications, are in a prompt without `find_tools`."""
ALWAYS_LISTED = ("memory_search", "remember", "read_file", "write_file", "web_search", "web_fetch", "cron", "todo")
"""The tools that the prompt of a model with a small context lists; `find_tools` finds the others."""
MAX_FOUND = 40
"""Tools found by `find_tools` that a prompt shows, the newest: providers accept 128 tools at most."""


def short_spec(tool: AnyTool) -> ToolSpec:
    """The tool for a small context: the first sentence about it, and its arguments without descriptions."""
    sentence, stop, _ = tool.description.partition(". ")
    return ToolSpec(
        tool.name, sentence + stop.strip(), simplified(parameters_of(tool.arguments), {}, _bare), Label.OWNER
    )


class AnyArguments(BaseModel):
    """Arguments that are checked elsewhere, against the `parameters` of the tool."""

    model_config = ConfigDict(extra="allow", frozen=True)


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool of a source, and how far its description is trusted: as the owner's words once they confirmed it."""

    tool: AnyTool
    label: Label


class ToolSource(Protocol):
    """A source of one person's tools: MCP servers or tool files. Names are unique across sources."""

    @property
    def offers(self) -> Sequence[Offer]:
        """The tools that may be called, as of the last `refresh` or `discover`."""

    @property
    def more(self) -> bool:
        """Whether `discover` may find further tools."""
        return False

    async def refresh(self) -> None:
        """Read the tools stored on this machine. Called when a turn opens, so it makes no requests."""
        return

    async def discover(self) -> Sequence[str]:
        """Ask every server. Returns one line in our words for each that failed; never raises for what a server does."""
        return ()


@dataclass(frozen=True, slots=True)
class NamedTools(ToolSource):
    """The tools of a source that an agent file names; others are not looked for."""

    source: ToolSource
    names: frozenset[str]

    @property
    def offers(self) -> Sequence[Offer]:
        """The offers with these names."""
        return [offer for offer in self.source.offers if offer.tool.name in self.names]

    async def refresh(self) -> None:
        """Refresh the source."""
        await self.source.refresh()

    async def discover(self) -> Sequence[str]:
        """Discover the tools of the source."""
        return await self.source.discover()


def spec_of(tool: AnyTool, label: Label) -> ToolSpec:
    """The tool as the model sees it, described in words of this label."""
    return ToolSpec(tool.name, tool.description, tool.parameters or parameters_of(tool.arguments), label)


def can_plan(tools: Iterable[AnyTool], sources: Iterable[ToolSource]) -> bool:
    """Whether plans are of use with these tools: the roles of built-in ones alone are not."""
    offered = (offer.tool for source in sources for offer in source.offers)
    return any(tool.roles and tool.name not in BUILT_IN for tool in (*tools, *offered))


def offers_of(sources: Iterable[ToolSource]) -> dict[str, Offer]:
    """The tools of sources by name, without those that could pass for a built-in one, or for one of an earlier source.

    Each source refuses such names itself; this holds for all of them together, and for tools that were there before.
    """
    found = dict[str, Offer]()
    for source in sources:
        others = {name.casefold().replace("-", "_") for name in found}
        for offer in source.offers:
            name = offer.tool.name
            if not taken_name(name) and name.casefold().replace("-", "_") not in others:
                found.setdefault(name, offer)
    return found


def shown_specs(
    sources: Sequence[ToolSource], entries: Iterable[Entry], label: Label
) -> tuple[tuple[ToolSpec, ...], bool]:
    """The tools of sources that the prompt of a run with this label shows beside the built-in ones, and whether it
    needs `find_tools`. Nothing of a tool is in it whose description is trusted less than the run.

    All confirmed tools if they are few, otherwise those that `find_tools` has found in the conversation: the oldest
    first, so that the beginning of the prompt stays the same.
    """
    offers = offers_of(sources)
    ready = [spec_of(offer.tool, offer.label) for offer in offers.values() if offer.label is Label.OWNER]
    sizes = (len(each.description) + len(json.dumps(each.parameters)) for each in ready)
    few = len(ready) <= MAX_TOOLS and sum(sizes) <= MAX_CHARS
    listed = {spec.name: spec for spec in (ready if few else ())}
    known = {name for name, offer in offers.items() if offer.label <= label and name not in listed}
    found = [name for name in dict.fromkeys(found_in(entries)) if name in known]
    listed |= {name: spec_of(offers[name].tool, offers[name].label) for name in found[-MAX_FOUND:]}
    return tuple(listed.values()), len(ready if few else ()) < len(offers) or any(source.more for source in sources)


def tool_title(name: str) -> str:
    """The name of a source's tool for people, such as "weather · forecast"."""
    source, _, own = name.removeprefix("mcp_").partition("_")
    return f"{source} · {own}" if own else name


def found_in(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the names of the tools that `find_tools` has found in a transcript."""
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
    match json_or_text(result):
        case {"tools": list(tools)}:
            yield from (str(tool["name"]) for tool in tools if isinstance(tool, dict) and "name" in tool)
