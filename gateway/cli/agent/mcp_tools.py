"""`supaclaw tools`: add MCP servers to config.json, and confirm what each of their tools does."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gateway.agent.mcp import pinned_tools
from gateway.agent.mcp.pinned_tools import Meaning, PinnedTool, PinnedToolRow, Use, described_tool
from gateway.agent.mcp.servers import McpServers
from gateway.cli.connections.database import require_owner, with_connection, with_database
from gateway.cli.process.config import set as set_key
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import (
    AsJson,
    Yes,
    argument,
    confirm_reviewed,
    facts_of,
    option,
    print_result,
    print_rows,
)
from gateway.config.editing import config_file
from gateway.config.environment import Environment
from gateway.domain.conversation.diff import legible
from gateway.domain.conversation.tools import ArgumentRole
from gateway.domain.errors import OwnerMustAct
from gateway.net.errors import NetError
from gateway.store.connection.pool import Database

COLUMNS = ("name", "state", "does", "description")
Names = Annotated[list[str], argument("Tools, or a server for all of its tools.", "NAME")]
Name = Annotated[str, argument("As `supaclaw tools list` shows it.", "NAME")]
Roles = Annotated[
    list[str] | None, option(f"The meaning of an argument: {', '.join(ArgumentRole)}.", "ARGUMENT=ROLE", "--role")
]
Own = Annotated[str, option("The field that is true for entries you made; * if all entries are yours.", "FIELD")]
Does = Annotated[Use, option("The class of its calls.", None, "--class")]


def show_all(as_json: AsJson = False) -> None:
    """List the tools that servers offer."""
    rows = list(map(PinnedToolRow.of, with_connection(pinned_tools.read)))
    print_rows(rows, COLUMNS, as_json=as_json, none="No tools yet. `supaclaw tools test` asks the servers of tools.mcp")


def show(name: Name, as_json: AsJson = False) -> None:
    """Show a tool, and its changes since you confirmed it."""
    tool = with_database(lambda database: pinned_tools.get(database, name))
    print_result([facts_of(PinnedToolRow.of(tool))], legible(described_tool(tool)), as_json=as_json)


def check(as_json: AsJson = False) -> None:
    """Connect to the servers and list what they offer."""
    found = with_database(_test_servers)
    print_rows(found, ("server", "tools", "problem"), as_json=as_json, none="tools.mcp names no server.")
    if any(each["problem"] for each in found):
        raise typer.Exit(1)


def confirm(names: Names, does: Does = Use.WRITE, roles: Roles = None, own: Own = "", yes: Yes = False) -> None:
    """Switch on tools as they are described now."""
    meaning = Meaning(dict(map(_role, roles or ())), own)
    for tool in _named(names):
        if not yes:
            echo(legible(described_tool(tool)))
            planned = f" A plan may fill {', '.join(roles)} without a question." if roles else ""
            asked = f"May the agent read this as your own words? A call is classed {does.value}.{planned}"
            confirm_reviewed(asked, "tools")
        sha256 = tool.undecided.sha256
        with_database(partial(pinned_tools.confirm, name=tool.name, sha256=sha256, use=does, meaning=meaning))
        echo(f"{tool.name} is on: {does.value}")


def _role(option: str) -> tuple[str, ArgumentRole]:
    name, _, role = option.partition("=")
    if role not in set(ArgumentRole):
        raise OwnerMustAct(
            f"--role {option[:80]}: write ARGUMENT=ROLE, with one of {', '.join(ArgumentRole)} as the role"
        )
    return name, ArgumentRole(role)


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


async def _test_servers(database: Database) -> list[Mapping[str, object]]:
    from gateway.app.storage.offline import offline_servers

    environment, owner = Environment.read(os.environ), (await database.run(require_owner)).id
    async with offline_servers(database, environment, os.environ, owner) as servers:
        return [await _test_server(servers, name) for name in servers.servers]


async def _test_server(servers: McpServers, name: str) -> Mapping[str, object]:
    try:
        return {"server": name, "tools": len((await servers.connect(name)).tools), "problem": ""}
    except NetError as error:
        return {"server": name, "tools": 0, "problem": str(error)}


SCRAPLING_SERVICE = "scrapling:8000"
"""The service in docker-compose.yml."""


def _config_entry(program: Path) -> dict[str, object]:
    """The entry of an installed scrapling: the gateway starts it in the jail, with its packages and browsers."""
    browsers = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache/ms-playwright")
    packages = program.resolve().parent.parent
    reads = [packages, (packages / "bin/python").resolve().parent.parent, browsers]
    return {
        "command": str(program.resolve()),
        "args": ["mcp"],
        "reads": [str(each) for each in dict.fromkeys(reads) if each.exists() and not each.is_relative_to("/usr")],
        "env": {"PLAYWRIGHT_BROWSERS_PATH": str(browsers)},
        "hosts": ["*"],
    }


class KnownServer(StrEnum):
    """Servers that can be added by name."""

    WEB_FETCH = "web-fetch"


def add(
    name: Annotated[KnownServer, argument("web-fetch: pages that need a browser, read by scrapling.", "NAME")],
    url: Annotated[
        str, option("The server's address (default: the one installed here, else the container's).", "URL")
    ] = "",
) -> None:
    """Add an MCP server to config.json by its name."""
    path = Environment.read(os.environ).config
    servers = config_file.get_key(path, "tools.mcp", os.environ)
    if isinstance(servers, dict) and name in servers:
        raise OwnerMustAct(f"tools.mcp.{name} already exists; `supaclaw config set` changes it")
    if not url and (installed := shutil.which("scrapling")):
        set_key(f"tools.mcp.{name}", json.dumps(_config_entry(Path(installed))))
        echo(
            f"the gateway starts {installed} when needed; next: `supaclaw tools test`, `supaclaw tools confirm {name}`"
        )
        return
    url = url or f"http://{SCRAPLING_SERVICE}/mcp"
    private = config_file.get_key(path, "net.private_allow", os.environ)
    allowed = [str(each) for each in private] if isinstance(private, list) else []
    place = url.partition("://")[2].partition("/")[0]
    if place not in allowed:
        set_key("net.private_allow", json.dumps([*allowed, place]))
    set_key(f"tools.mcp.{name}", json.dumps({"url": url}))
    start = "docker compose --profile scrapling up -d" if place == SCRAPLING_SERVICE else f"start it at {url}"
    echo(f"next: {start}; then `supaclaw tools test`, and `supaclaw tools confirm {name}`")
