"""Pinned tools of MCP servers: the exact definitions that the owner confirmed, and the use of each.

A server's own claims about the effects of its tools are ignored. An unconfirmed tool counts as writing; a tool whose
definition has changed since its confirmation is off.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from gateway.domain.conversation.diff import difference
from gateway.domain.conversation.tools import ArgumentRole, ToolFailed
from gateway.domain.errors import OwnerMustAct, required
from gateway.domain.ids import PrincipalId
from gateway.domain.text.texts import one_line
from gateway.net.mcp.server import ToolDefinition
from gateway.store.connection.pool import Connection, Database
from gateway.store.trust import pins
from gateway.store.trust.pins import PinState

KIND, PROMPTS = "mcp_tool", "mcp_prompt"
GET_PROMPT = "_get_prompt"
"""The end of the name of the tool that fills in prompts of a server."""


class ToolState(StrEnum):
    """Whether a tool can be called."""

    ON = "on"
    NEW = "new"
    """The owner can call it; each call needs an approval."""
    OFF = "off"
    CHANGED = "changed"


class Use(StrEnum):
    """The effect of a call, according to the owner."""

    READ = "read"
    WRITE = "write"
    IRREVERSIBLE = "irreversible"


@dataclass(frozen=True, slots=True)
class Meaning:
    """`Tool.roles` and `Tool.own_rows`, according to the owner."""

    roles: Mapping[str, ArgumentRole] = field(default_factory=dict)
    own_rows: str = ""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Self:
        """As it is stored with the definition; older rows have none."""
        return cls({name: ArgumentRole(role) for name, role in kept.get("roles", {}).items()}, kept.get("own_rows", ""))


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """A tool of a server; `seen` is its newest definition if that differs from the confirmed one."""

    state: ToolState
    definition: ToolDefinition
    use: Use = Use.WRITE
    seen: ToolDefinition | None = None
    meaning: Meaning = field(default_factory=Meaning)

    @property
    def name(self) -> str:
        """The name for the model."""
        return self.definition.tool_name

    @property
    def undecided(self) -> ToolDefinition:
        """The definition that a confirmation would cover."""
        return self.seen or self.definition

    @property
    def roles(self) -> Mapping[str, str]:
        """The roles of the undecided definition's arguments: those confirmed with the same one, or else ""."""
        known = self.undecided.parameters.get("properties")
        confirmed = {} if self.seen else self.meaning.roles
        return {**dict.fromkeys(known if isinstance(known, Mapping) else (), ""), **confirmed}


async def read(conn: Connection) -> list[PinnedTool]:
    """All known tools, by name."""
    found = dict[str, PinnedTool]()
    for pin, content in await pins.list_contents(conn, KIND):  # staged pins come last
        kept, known = json.loads(content), found.get(pin.name)
        definition = ToolDefinition(**kept["definition"])
        if pin.state != "staged":
            found[pin.name] = PinnedTool(ToolState(pin.state), definition, Use(kept["use"]), meaning=Meaning.of(kept))
        elif known is None:
            found[pin.name] = PinnedTool(ToolState.NEW, definition)
        else:
            state = ToolState.CHANGED if known.state is ToolState.ON else known.state
            found[pin.name] = replace(known, state=state, seen=definition)
    return list(found.values())


async def record(database: Database, server: str, listed: Iterable[ToolDefinition]) -> None:
    """Store the current definitions of a server's tools; new and changed ones wait for the owner's confirmation."""

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


async def confirm(database: Database, name: str, sha256: str, use: Use, meaning: Meaning | None = None) -> None:
    """Enable exactly this definition; raises `OwnerMustAct` if the tool has another one now, or other arguments.

    Without a `meaning` every argument asks.
    """
    tool = await get(database, name)
    definition = tool.undecided
    if definition.sha256 != sha256:
        raise OwnerMustAct(f"{name} has changed since you saw it, so nothing was done; look at it again")
    means = meaning or Meaning()
    if unknown := sorted(each for each in means.roles if each.partition(".")[0] not in tool.roles):
        raise OwnerMustAct(f"{name} has no argument {unknown[0][:80]!r}; `supaclaw tools show {name}` shows them")
    await database.run(lambda tx: _put(tx, "on", definition, use, means))


async def disable(database: Database, name: str) -> None:
    """Disable a tool, confirmed or not; a new definition doesn't enable it."""
    tool = await get(database, name)

    async def store(tx: Connection) -> None:
        if not await pins.switch_off(tx, KIND, name):
            await _put(tx, "off", tool.definition)

    await database.run(store)


async def get(database: Database, name: str) -> PinnedTool:
    """The tool with this name; raises `OwnerMustAct`."""
    found = next((tool for tool in await database.read(read) if tool.name == name), None)
    return required(found, OwnerMustAct(f"there is no tool {name[:80]!r}; `supaclaw tools list` shows them"))


async def confirm_prompt(
    database: Database, whose: PrincipalId, prompt: str, sha256: str, ask: Callable[[], Awaitable[bool]]
) -> bool:
    """Whether a person has confirmed exactly this text of a prompt, before or when asked now; only its hash is kept."""
    name = f"{whose} {prompt}"
    if (await database.read(lambda conn: pins.confirmed(conn, PROMPTS))).get(name) == sha256:
        return True
    if confirmed := await ask():
        await database.run(lambda tx: pins.put(tx, PROMPTS, name, "on", sha256, b"", ""))
    return confirmed


async def _put(
    tx: Connection, state: PinState, definition: ToolDefinition, use: Use = Use.WRITE, meaning: Meaning | None = None
) -> None:
    means = asdict(meaning) if meaning else {}
    content = json.dumps({"use": use.value, **means, "definition": asdict(definition)}).encode()
    await pins.put(tx, KIND, definition.tool_name, state, definition.sha256, content, definition.url)


def tool_facts(tool: PinnedTool) -> dict[str, str]:
    """A tool in a list; `does` is "" until the owner has said it. The description is the server's."""
    now, does = tool.undecided, "" if tool.state is ToolState.NEW else tool.use.value
    return {
        "name": tool.name,
        "state": tool.state.value,
        "does": does,
        "description": one_line(now.description, 100),
        "url": now.url,
        "sha256": now.sha256,
    }


def described_tool(tool: PinnedTool) -> str:
    """The definition that a confirmation would cover, and the confirmed one."""
    lines = [f"{tool.name} is {tool.state.value}"]
    for when, each in (("As you confirmed it:", tool.definition), ("Now:", tool.seen)):
        if each is not None:
            lines += [when if tool.seen else "", _written(each)]
    lines += [f"{name} is the {role}" for name, role in tool.meaning.roles.items()]
    lines += [f"entries are yours: {tool.meaning.own_rows}"] if tool.meaning.own_rows else []
    return "\n".join(filter(None, lines))


def tool_changes(tool: PinnedTool) -> str:
    """The definition as a difference from the confirmed one, if there is one."""
    if tool.seen is None:
        return _written(tool.definition)
    try:
        return difference(tool.name, _written(tool.definition), _written(tool.seen))
    except ToolFailed:
        return described_tool(tool)


def _written(each: ToolDefinition) -> str:
    return f"of {each.url}\n{each.description}\n{json.dumps(each.parameters, indent=1, ensure_ascii=False)}"
