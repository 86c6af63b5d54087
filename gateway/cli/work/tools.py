"""`supaclaw tools`: tools of MCP servers, and the owner's word on what each of them does."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from gateway.agent.mcp import pinned_tools
from gateway.agent.mcp.pinned_tools import PinnedTool, PinnedToolRow, Use, described_tool
from gateway.agent.mcp.servers import McpServers
from gateway.cli.console import echo
from gateway.cli.database import require_owner, with_connection, with_database
from gateway.cli.output import AsJson, print_rows
from gateway.cli.questions import Yes, ask_shown
from gateway.config.environment import Environment
from gateway.domain.conversation.diff import legible
from gateway.domain.errors import OwnerMustAct
from gateway.net.errors import NetError
from gateway.store.connection.pool import Database

COLUMNS = ("name", "state", "does", "description")
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Tools, or a server: all of its tools.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `supaclaw tools list` shows it.")]
Does = Annotated[Use, typer.Option("--class", help="What a call does.")]


@dataclass(frozen=True, slots=True)
class Tested:
    """A server that was connected."""

    server: str
    tools: int
    problem: str = ""


def show_all(as_json: AsJson = False) -> None:
    """List the tools that servers offer."""
    rows = list(map(PinnedToolRow.of, with_connection(pinned_tools.read)))
    print_rows(
        rows, COLUMNS, as_json=as_json, none="No tools yet. `supaclaw tools test` asks the servers of tools.mcp."
    )


def show(name: Name, as_json: AsJson = False) -> None:
    """Show a tool, and what changed in it."""
    tool = with_database(lambda database: pinned_tools.get(database, name))
    print_rows([PinnedToolRow.of(tool)], COLUMNS, as_json=True) if as_json else echo(legible(described_tool(tool)))


def check(as_json: AsJson = False) -> None:
    """Connect to the servers and list what they offer."""
    found = with_database(_tested)
    print_rows(found, ("server", "tools", "problem"), as_json=as_json, none="tools.mcp names no server.")
    if any(each.problem for each in found):
        raise typer.Exit(1)


def confirm(names: Names, does: Does = Use.WRITE, yes: Yes = False) -> None:
    """Switch on tools as they are described now."""
    for tool in _named(names):
        if not yes:
            echo(legible(described_tool(tool)))
            ask_shown(f"May the agent read this as your own words? A call is classed {does.value}.", "tools")
        sha256 = tool.undecided.sha256
        with_database(partial(pinned_tools.confirm, name=tool.name, sha256=sha256, use=does))
        echo(f"{tool.name} is on: {does.value}")


def disable(names: Names) -> None:
    """Switch tools off."""
    for tool in _named(names):
        with_database(partial(pinned_tools.disable, name=tool.name))
        echo(f"{tool.name} is off")


def _named(names: Sequence[str]) -> list[PinnedTool]:
    known = with_connection(pinned_tools.read)
    for name in names:
        if not any(name in (tool.name, tool.definition.server) for tool in known):
            raise OwnerMustAct(f"there is no tool {name[:80]!r}; `supaclaw tools list` shows them")
    return [tool for tool in known if {tool.name, tool.definition.server} & set(names)]


async def _tested(database: Database) -> list[Tested]:
    from gateway.app.storage.offline import servers_apart

    environment, owner = Environment.read(os.environ), (await database.run(require_owner)).id
    async with servers_apart(database, environment, os.environ, owner) as servers:
        return [await _connected(servers, name) for name in servers.servers]


async def _connected(servers: McpServers, name: str) -> Tested:
    try:
        return Tested(name, len((await servers.connect(name)).tools))
    except NetError as error:
        return Tested(name, 0, str(error))
