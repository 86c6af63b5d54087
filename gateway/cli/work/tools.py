"""`supaclaw tools`: tools of MCP servers, and the owner's word on what each of them does."""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Self, TypeVar

import typer

from gateway.agent.mcp import pinning
from gateway.agent.mcp.pinning import PinnedTool, State, Use
from gateway.agent.mcp.servers import Credentials, McpServers
from gateway.cli import questions
from gateway.cli.console import echo
from gateway.cli.database import require_owner, with_database
from gateway.cli.output import AsJson, print_rows
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.model import Config
from gateway.domain.diff import legible
from gateway.domain.errors import OwnerMustAct
from gateway.domain.texts import one_line
from gateway.net.errors import NetError
from gateway.net.mcp.connections import Connections
from gateway.net.mcp.definition import Definition
from gateway.net.rules import Rules
from gateway.store.pool import Database

Result = TypeVar("Result")
COLUMNS = ("name", "state", "does", "description")
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Tools, or a server: all of its tools.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `supaclaw tools list` shows it.")]
Does = Annotated[Use, typer.Option("--class", help="What a call does.")]


@dataclass(frozen=True, slots=True)
class Row:
    """One tool."""

    name: str
    server: str
    url: str
    state: str
    does: str
    description: str
    sha256: str

    @classmethod
    def of(cls, tool: PinnedTool) -> Self:
        """As a program reads it."""
        shown = tool.undecided
        does = "" if tool.state is State.NEW else tool.use.value
        text = one_line(shown.description, 100)
        return cls(tool.name, shown.server, shown.url, tool.state.value, does, text, shown.sha256)


@dataclass(frozen=True, slots=True)
class Tested:
    """A server that was connected."""

    server: str
    tools: int
    problem: str = ""


def show_all(as_json: AsJson = False) -> None:
    """List the tools that servers have offered so far, and which of them are on."""
    rows = list(map(Row.of, with_database(_known)))
    print_rows(
        rows, COLUMNS, as_json=as_json, none="No tools yet. `supaclaw tools test` asks the servers of tools.mcp."
    )


def show(name: Name, as_json: AsJson = False) -> None:
    """Show a tool as its server describes it, and what changed since you confirmed it."""
    tool = with_database(lambda database: pinning.get(database, name))
    print_rows([Row.of(tool)], COLUMNS, as_json=True) if as_json else echo(_described(tool))


def check(as_json: AsJson = False) -> None:
    """Connect to the servers of the configuration, and list what they offer."""
    found = _with_servers(_tested)
    print_rows(found, ("server", "tools", "problem"), as_json=as_json, none="tools.mcp names no server.")
    if any(each.problem for each in found):
        raise typer.Exit(1)


def confirm(
    names: Names, does: Does = Use.WRITE, yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False
) -> None:
    """Switch on tools as they are described now."""
    for tool in _named(names):
        if not yes:
            echo(_described(tool))
            _ask(f"May the agent read this as your own words, and call {tool.name} to {does.value}?")
        sha256 = tool.undecided.sha256
        with_database(partial(pinning.confirm, name=tool.name, sha256=sha256, use=does))
        echo(f"{tool.name} is on: {does.value}")


def disable(names: Names) -> None:
    """Switch tools off."""
    for tool in _named(names):
        with_database(partial(pinning.disable, name=tool.name))
        echo(f"{tool.name} is off")


async def _known(database: Database) -> list[PinnedTool]:
    async with database.connection() as conn:
        return await pinning.read(conn)


def _named(names: Sequence[str]) -> list[PinnedTool]:
    known, found = with_database(_known), list[PinnedTool]()
    for name in names:
        those = [tool for tool in known if name in (tool.name, tool.definition.server)]
        if not those:
            raise OwnerMustAct(f"there is no tool {name[:80]!r}; `supaclaw tools list` shows them")
        found += those
    return found


def _described(tool: PinnedTool) -> str:
    before = [] if tool.seen in (None, tool.definition) else ["as you confirmed it:", *_lines(tool.definition), "now:"]
    return legible("\n".join([f"{tool.name} is {tool.state.value}", *before, *_lines(tool.undecided)]))


def _lines(definition: Definition) -> list[str]:
    given = json.dumps(definition.parameters, indent=1, ensure_ascii=False)
    return [f"  of {definition.url}", f"  {definition.description}", *(f"  {line}" for line in given.split("\n"))]


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise OwnerMustAct("look at it with `supaclaw tools show`; then add --yes")
    questions.confirm(question)


async def _tested(servers: McpServers) -> list[Tested]:
    found = list[Tested]()
    for name in servers.servers:
        try:
            found.append(Tested(name, len((await servers.connect(name)).tools)))
        except NetError as error:
            found.append(Tested(name, 0, str(error)))
    return found


def _with_servers(work: Callable[[McpServers], Awaitable[Result]]) -> Result:
    from gateway.app.resolving import StoredSecrets, look

    environment = Environment.read(os.environ)
    config: Config = load(environment.config, os.environ, StoredSecrets(environment, os.environ))

    async def run(database: Database) -> Result:
        owner = (await database.run(require_owner)).id
        secrets = await look(database, environment, os.environ)
        assert secrets is not None, "there is an owner"
        credentials = Credentials(secrets.finder(owner), partial(secrets.used, principal=owner))
        connections = Connections(lambda: Rules.of(config.net.private_allow))
        servers = McpServers(owner, True, lambda: config.tools.mcp, database, connections, credentials, _no_files)
        try:
            return await work(servers)
        finally:
            await connections.close()

    return with_database(run)


async def _no_files(_path: str, _data: bytes) -> str:
    raise OwnerMustAct("nothing is called from here")
