"""`supaclaw tools`: tools of MCP servers, and the owner's word on what each of them does."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from gateway.agent.mcp import pinning
from gateway.agent.mcp.local import LocalServers
from gateway.agent.mcp.pinning import PinnedTool, State, Use
from gateway.agent.mcp.servers import McpServers
from gateway.cli import questions
from gateway.cli.console import echo
from gateway.cli.database import require_owner, with_connection, with_database
from gateway.cli.output import AsJson, print_rows
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.domain.diff import legible
from gateway.domain.errors import OwnerMustAct
from gateway.domain.texts import one_line
from gateway.net.errors import NetError
from gateway.net.mcp.connections import Connections
from gateway.net.rules import Rules
from gateway.sandbox.workshop import Workshop
from gateway.store.pool import Database

COLUMNS = ("name", "state", "does", "description")
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Tools, or a server: all of its tools.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `supaclaw tools list` shows it.")]
Does = Annotated[Use, typer.Option("--class", help="What a call does.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]


@dataclass(frozen=True, slots=True)
class Row:
    """One tool; `does` is empty until its owner has said it."""

    name: str
    state: str
    does: str
    description: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Tested:
    """A server that was connected."""

    server: str
    tools: int
    problem: str = ""


def show_all(as_json: AsJson = False) -> None:
    """List the tools that servers offer."""
    rows = list(map(_row, with_connection(pinning.read)))
    print_rows(
        rows, COLUMNS, as_json=as_json, none="No tools yet. `supaclaw tools test` asks the servers of tools.mcp."
    )


def show(name: Name, as_json: AsJson = False) -> None:
    """Show a tool, and what changed in it."""
    tool = with_database(lambda database: pinning.get(database, name))
    print_rows([_row(tool)], COLUMNS, as_json=True) if as_json else echo(_described(tool))


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
            echo(_described(tool))
            if not sys.stdin.isatty():
                raise OwnerMustAct("look at it with `supaclaw tools show`; then add --yes")
            questions.confirm(f"May the agent read this as your own words? A call is classed {does.value}.")
        sha256 = tool.undecided.sha256
        with_database(partial(pinning.confirm, name=tool.name, sha256=sha256, use=does))
        echo(f"{tool.name} is on: {does.value}")


def disable(names: Names) -> None:
    """Switch tools off."""
    for tool in _named(names):
        with_database(partial(pinning.disable, name=tool.name))
        echo(f"{tool.name} is off")


def _named(names: Sequence[str]) -> list[PinnedTool]:
    known = with_connection(pinning.read)
    for name in names:
        if not any(name in (tool.name, tool.definition.server) for tool in known):
            raise OwnerMustAct(f"there is no tool {name[:80]!r}; `supaclaw tools list` shows them")
    return [tool for tool in known if {tool.name, tool.definition.server} & set(names)]


def _row(tool: PinnedTool) -> Row:
    now, does = tool.undecided, "" if tool.state is State.NEW else tool.use.value
    return Row(tool.name, tool.state.value, does, one_line(now.description, 100), now.url, now.sha256)


def _described(tool: PinnedTool) -> str:
    lines = [f"{tool.name} is {tool.state.value}"]
    for when, each in (("As you confirmed it:", tool.definition), ("Now:", tool.seen)):
        if each is not None:
            given = json.dumps(each.parameters, indent=1, ensure_ascii=False)
            lines += [when if tool.seen else "", f"of {each.url}", each.description, given]
    return legible("\n".join(filter(None, lines)))


async def _tested(database: Database) -> list[Tested]:
    from gateway.app.resolving import StoredSecrets, look

    environment, owner = Environment.read(os.environ), (await database.run(require_owner)).id
    config = load(environment.config, os.environ, StoredSecrets(environment, os.environ))
    secrets = await look(database, environment, os.environ)
    assert secrets is not None, "there is an owner"
    connections = Connections(lambda: Rules.of(config.net.private_allow))
    jail = Workshop(environment.data / "scratch")
    local = LocalServers(jail, environment.data, connections.rules)
    servers = McpServers(owner, True, lambda: config.tools.mcp, database, connections, secrets, _no_files, local)
    try:
        return [await _connected(servers, name) for name in servers.servers]
    finally:
        await connections.close()
        await jail.close()


async def _connected(servers: McpServers, name: str) -> Tested:
    try:
        return Tested(name, len((await servers.connect(name)).tools))
    except NetError as error:
        return Tested(name, 0, str(error))


async def _no_files(_path: str, _data: bytes) -> str:
    raise OwnerMustAct("nothing is called from here")
