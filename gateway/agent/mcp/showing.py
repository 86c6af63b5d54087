"""What a person reads of a server's tool before they confirm it, in the terminal and on the page."""

import json
from dataclasses import dataclass
from typing import Self

from gateway.agent.mcp.pinning import PinnedTool, State
from gateway.domain.conversation.diff import difference
from gateway.domain.conversation.tools import ToolFailed
from gateway.domain.text.texts import one_line
from gateway.net.mcp.server import ToolDefinition


@dataclass(frozen=True, slots=True)
class Row:
    """One tool; `does` is empty until its owner has said it. The description is its server's word."""

    name: str
    state: str
    does: str
    description: str
    url: str
    sha256: str

    @classmethod
    def of(cls, tool: PinnedTool) -> Self:
        """From what is known of it."""
        now, does = tool.undecided, "" if tool.state is State.NEW else tool.use.value
        return cls(tool.name, tool.state.value, does, one_line(now.description, 100), now.url, now.sha256)


def described(tool: PinnedTool) -> str:
    """All that a confirmation would cover, and what it was before."""
    lines = [f"{tool.name} is {tool.state.value}"]
    for when, each in (("As you confirmed it:", tool.definition), ("Now:", tool.seen)):
        if each is not None:
            lines += [when if tool.seen else "", _written(each)]
    return "\n".join(filter(None, lines))


def changes(tool: PinnedTool) -> str:
    """The same as a difference, where there is one."""
    if tool.seen is None:
        return _written(tool.definition)
    try:
        return difference(tool.name, _written(tool.definition), _written(tool.seen))
    except ToolFailed:
        return described(tool)


def _written(each: ToolDefinition) -> str:
    return f"of {each.url}\n{each.description}\n{json.dumps(each.parameters, indent=1, ensure_ascii=False)}"
