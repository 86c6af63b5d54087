"""Pinned tools of MCP servers: exactly which definition the owner confirmed, and what a call of it does.

What a server says about the effect of its tools isn't used. A tool that was never confirmed counts as one that writes;
one whose definition has changed since it was confirmed is off.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Self

from gateway.domain.conversation.diff import difference
from gateway.domain.conversation.tools import ToolFailed
from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import one_line
from gateway.net.mcp.server import ToolDefinition
from gateway.store.connection.pool import Connection, Database
from gateway.store.trust import pins
from gateway.store.trust.pins import PinState

KIND = "mcp_tool"


class ToolState(StrEnum):
    """Whether it can be called, and why not."""

    ON = "on"
    NEW = "new"
    """It can, by the owner; each call needs their yes."""
    OFF = "off"
    CHANGED = "changed"


class Use(StrEnum):
    """What a call does, in the owner's word."""

    READ = "read"
    WRITE = "write"
    IRREVERSIBLE = "irreversible"


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """A tool that some server has described; `seen` is its newest definition if that isn't the confirmed one."""

    state: ToolState
    definition: ToolDefinition
    use: Use = Use.WRITE
    seen: ToolDefinition | None = None

    @property
    def name(self) -> str:
        """As our model calls it."""
        return self.definition.tool_name

    @property
    def undecided(self) -> ToolDefinition:
        """What a confirmation would cover."""
        return self.seen or self.definition


async def read(conn: Connection) -> list[PinnedTool]:
    """All that are known, by name."""
    found = dict[str, PinnedTool]()
    for pin, content in await pins.list_contents(conn, KIND):  # what is staged comes after what was decided
        kept, known = json.loads(content), found.get(pin.name)
        definition = ToolDefinition(**kept["definition"])
        if pin.state != "staged":
            found[pin.name] = PinnedTool(ToolState(pin.state), definition, Use(kept["use"]))
        elif known is None:
            found[pin.name] = PinnedTool(ToolState.NEW, definition)
        else:
            state = ToolState.CHANGED if known.state is ToolState.ON else known.state
            found[pin.name] = replace(known, state=state, seen=definition)
    return list(found.values())


async def record(database: Database, server: str, listed: Iterable[ToolDefinition]) -> None:
    """What a server says of its tools now: what differs from what is known waits for the owner."""

    async def store(tx: Connection) -> None:
        known = {tool.name: tool for tool in await read(tx) if tool.definition.server == server}
        for definition in listed:
            tool, sha256 = known.pop(definition.tool_name, None), definition.sha256
            if tool is None or sha256 not in (tool.definition.sha256, tool.undecided.sha256):
                await _put(tx, "staged", definition)
            elif tool.seen and sha256 == tool.definition.sha256:
                await pins.unstage(tx, KIND, tool.name)
        for tool in known.values():
            if tool.state is ToolState.NEW:
                await pins.unstage(tx, KIND, tool.name)

    await database.run(store)


async def confirm(database: Database, name: str, sha256: str, use: Use) -> None:
    """Switch on exactly this definition. Raises `OwnerMustAct` if it's another one by now."""
    definition = (await get(database, name)).undecided
    if definition.sha256 != sha256:
        raise OwnerMustAct(f"{name} has changed since you saw it, so nothing was done; look at it again")
    await database.run(lambda tx: _put(tx, "on", definition, use))


async def disable(database: Database, name: str) -> None:
    """Switch it off, whether it was confirmed or not; a change of it will not switch it on."""
    tool = await get(database, name)

    async def store(tx: Connection) -> None:
        if not await pins.switch_off(tx, KIND, name):
            await _put(tx, "off", tool.definition)

    await database.run(store)


async def get(database: Database, name: str) -> PinnedTool:
    """One of them; raises `OwnerMustAct`."""
    async with database.connection() as conn:
        found = next((tool for tool in await read(conn) if tool.name == name), None)
    if found is None:
        raise OwnerMustAct(f"there is no tool {name[:80]!r}; `supaclaw tools list` shows them")
    return found


async def _put(tx: Connection, state: PinState, definition: ToolDefinition, use: Use = Use.WRITE) -> None:
    content = json.dumps({"use": use.value, "definition": asdict(definition)}).encode()
    await pins.put(tx, KIND, definition.tool_name, state, definition.sha256, content, definition.url)


@dataclass(frozen=True, slots=True)
class PinnedToolRow:
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
        now, does = tool.undecided, "" if tool.state is ToolState.NEW else tool.use.value
        return cls(tool.name, tool.state.value, does, one_line(now.description, 100), now.url, now.sha256)


def described_tool(tool: PinnedTool) -> str:
    """All that a confirmation would cover, and what it was before."""
    lines = [f"{tool.name} is {tool.state.value}"]
    for when, each in (("As you confirmed it:", tool.definition), ("Now:", tool.seen)):
        if each is not None:
            lines += [when if tool.seen else "", _written(each)]
    return "\n".join(filter(None, lines))


def tool_changes(tool: PinnedTool) -> str:
    """The same as a difference, where there is one."""
    if tool.seen is None:
        return _written(tool.definition)
    try:
        return difference(tool.name, _written(tool.definition), _written(tool.seen))
    except ToolFailed:
        return described_tool(tool)


def _written(each: ToolDefinition) -> str:
    return f"of {each.url}\n{each.description}\n{json.dumps(each.parameters, indent=1, ensure_ascii=False)}"
