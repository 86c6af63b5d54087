"""What the owner confirmed of the tools of MCP servers: exactly which definition, and what a call of it does.

A server's own word on what its tools do counts for nothing. A tool that was never confirmed is one that writes; one
that is described otherwise than when it was confirmed is off.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gateway.domain.errors import OwnerMustAct
from gateway.net.mcp.definition import Definition
from gateway.store import pins
from gateway.store.pins import Pin
from gateway.store.pool import Connection, Database

KIND = "mcp_tool"


class State(StrEnum):
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

    state: State
    definition: Definition
    use: Use = Use.WRITE
    seen: Definition | None = None

    @property
    def name(self) -> str:
        """As our model calls it."""
        return self.definition.tool_name

    @property
    def undecided(self) -> Definition:
        """What a confirmation would cover."""
        return self.seen or self.definition


async def read(conn: Connection) -> list[PinnedTool]:
    """All that are known, by name."""
    rows = await pins.list_contents(conn, KIND)
    waiting = {pin.name: Definition.of(content) for pin, content in rows if pin.state == "staged"}
    decided = {
        pin.name: _decided(pin, content, waiting.get(pin.name)) for pin, content in rows if pin.state != "staged"
    }
    new = {name: PinnedTool(State.NEW, seen) for name, seen in waiting.items() if name not in decided}
    return [tool for _, tool in sorted({**decided, **new}.items())]


async def record(database: Database, server: str, listed: Iterable[Definition]) -> None:
    """What a server says of its tools now: what differs from what is known waits for the owner."""
    now = {each.tool_name: each for each in listed}
    async with database.connection() as conn:
        known = {tool.name: tool for tool in await read(conn) if tool.definition.server == server}
    changes = _changes(known, now)
    if not changes:
        return

    async def store(tx: Connection) -> None:
        for name, waiting in changes.items():
            if waiting is None:
                await pins.unstage(tx, KIND, name)
            else:
                await pins.put(tx, KIND, name, "staged", waiting.sha256, waiting.content, waiting.url)

    await database.run(store)


async def confirm(database: Database, name: str, sha256: str, use: Use) -> PinnedTool:
    """Switch on exactly this definition. Raises `OwnerMustAct` if it's another one by now."""
    tool = await get(database, name)
    definition = tool.undecided
    if definition.sha256 != sha256:
        raise OwnerMustAct(f"{name} has changed since you saw it, so nothing was done; look at it again")
    content = json.dumps({"use": use.value, "definition": definition.content.decode()}).encode()
    await database.run(lambda tx: pins.put(tx, KIND, name, "on", sha256, content, definition.url))
    return PinnedTool(State.ON, definition, use)


async def disable(database: Database, name: str) -> None:
    """Switch it off, whether it was confirmed or not; a change of it will not switch it on."""
    tool = await get(database, name)
    content = json.dumps({"use": tool.use.value, "definition": tool.definition.content.decode()}).encode()
    sha256, url = tool.definition.sha256, tool.definition.url

    async def store(tx: Connection) -> None:
        if not await pins.switch_off(tx, KIND, name):
            await pins.put(tx, KIND, name, "off", sha256, content, url)

    await database.run(store)


async def get(database: Database, name: str) -> PinnedTool:
    """One of them; raises `OwnerMustAct`."""
    async with database.connection() as conn:
        found = next((tool for tool in await read(conn) if tool.name == name), None)
    if found is None:
        raise OwnerMustAct(f"there is no tool {name[:80]!r}; `supaclaw tools list` shows them")
    return found


def _decided(pin: Pin, content: bytes, seen: Definition | None) -> PinnedTool:
    kept = json.loads(content)
    state = State.OFF if pin.state == "off" else State.CHANGED if seen else State.ON
    return PinnedTool(state, Definition.of(kept["definition"].encode()), Use(kept["use"]), seen)


def _changes(known: Mapping[str, PinnedTool], now: Mapping[str, Definition]) -> dict[str, Definition | None]:
    """What is to wait by name, None for what no longer does."""
    changes: dict[str, Definition | None] = {}
    for name, definition in now.items():
        tool = known.get(name)
        if tool is None or definition.sha256 not in (tool.definition.sha256, tool.undecided.sha256):
            changes[name] = definition
        elif tool.seen and definition.sha256 == tool.definition.sha256:
            changes[name] = None
    gone: Sequence[str] = [name for name, tool in known.items() if tool.state is State.NEW and name not in now]
    return {**changes, **dict.fromkeys(gone)}
