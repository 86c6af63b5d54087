"""`supaclaw tools`: find MCP servers and add them to config.json, and confirm what each of their tools does."""

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer
from pydantic import AliasChoices, AliasPath, BaseModel, Field, ValidationError

from gateway.agent.mcp import pinned_tools
from gateway.agent.mcp.pinned_tools import Meaning, PinnedTool, Use, described_tool, tool_facts
from gateway.agent.mcp.servers import McpServers
from gateway.cli.agent.skills import guarded_fetch
from gateway.cli.connections.database import require_owner, with_connection, with_database
from gateway.cli.process.config import set as set_key
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import (
    AsJson,
    Yes,
    argument,
    confirm_reviewed,
    option,
    print_result,
    print_rows,
)
from gateway.config.editing import config_file
from gateway.config.environment import Environment
from gateway.domain.conversation.diff import legible
from gateway.domain.conversation.tools import ArgumentRole
from gateway.domain.errors import OwnerMustAct, raising
from gateway.net.errors import NetError
from gateway.store.connection.pool import Database

COLUMNS = ("name", "state", "does", "description")
Names = Annotated[list[str], argument("Tools, or a server for all of its tools.", "NAME")]
Name = Annotated[str, argument("As the list shows it.", "NAME")]
Roles = Annotated[
    list[str] | None, option(f"The meaning of an argument: {', '.join(ArgumentRole)}.", "ARGUMENT=ROLE", "--role")
]
Own = Annotated[str, option("The field that is true for entries you made; * if all entries are yours.", "FIELD")]
Does = Annotated[Use, option("The class of its calls.", None, "--class")]


def show_all(as_json: AsJson = False) -> None:
    """List the tools that servers offer."""
    rows = list(map(tool_facts, with_connection(pinned_tools.read)))
    print_rows(rows, COLUMNS, as_json=as_json, none="No tools yet. `supaclaw tools test` asks the servers of tools.mcp")


def show(name: Name, as_json: AsJson = False) -> None:
    """Show a tool, and its changes since you confirmed it."""
    tool = with_database(lambda database: pinned_tools.get(database, name))
    print_result([tool_facts(tool)], legible(described_tool(tool)), as_json=as_json)


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
        raise OwnerMustAct(f"--role {option[:80]}: write ARGUMENT=ROLE; the roles are {', '.join(ArgumentRole)}")
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


WEB_FETCH, FOUND = "web-fetch", 20
REGISTRY = "https://registry.modelcontextprotocol.io/v0.1/servers"


class _Place(BaseModel):
    """Of a server: an address, or a package."""

    url: str = Field("", validation_alias=AliasChoices("url", "identifier"))


class _Found(BaseModel):
    """A server in its publisher's words."""

    name: str = Field(validation_alias=AliasPath("server", "name"))
    description: str = Field("", validation_alias=AliasPath("server", "description"))
    remotes: list[_Place] = Field([], validation_alias=AliasPath("server", "remotes"))
    packages: list[_Place] = Field([], validation_alias=AliasPath("server", "packages"))


class _Answer(BaseModel):
    servers: list[_Found]


def search(
    words: Annotated[list[str], argument("In its name; the registry sees them.", "WORDS")], as_json: AsJson = False
) -> None:
    """Find MCP servers in the official registry."""
    query = urlencode({"search": " ".join(words), "version": "latest", "limit": FOUND})
    with raising(OwnerMustAct("the registry's answer can't be read; try again later"), ValidationError):
        found = _Answer.model_validate_json(asyncio.run(guarded_fetch()(f"{REGISTRY}?{query}", 2**20))).servers
    rows = [each.model_dump() | {"url": ", ".join(it.url for it in each.remotes + each.packages)} for each in found]
    print_rows(rows, ("name", "url", "description"), as_json=as_json, none="Nothing found.")


def add(
    name: Annotated[str, argument(f"A name for it; {WEB_FETCH}: pages that need a browser, by scrapling.", "NAME")],
    url: Annotated[
        str, option(f"The server's address (default of {WEB_FETCH}: installed here, else the container's).", "URL")
    ] = "",
) -> None:
    """Add an MCP server to config.json."""
    path = Environment.read(os.environ).config
    servers = config_file.get_key(path, "tools.mcp", os.environ)
    if isinstance(servers, dict) and name in servers:
        raise OwnerMustAct(f"tools.mcp.{name} already exists; `supaclaw config set` changes it")
    entry: dict[str, object] = {"url": url}
    first = "next:"
    if name != WEB_FETCH:
        if not url.startswith("https://"):
            raise OwnerMustAct(f"add --url with the https address of {name[:80]}; `supaclaw tools search` finds some")
    elif not url and (installed := shutil.which("scrapling")):
        entry = _config_entry(Path(installed))
        first = f"the gateway starts {installed} on demand; next:"
    else:
        entry["url"] = url = url or f"http://{SCRAPLING_SERVICE}/mcp"
        private = config_file.get_key(path, "net.private_allow", os.environ)
        allowed = [str(each) for each in private] if isinstance(private, list) else []
        place = url.partition("://")[2].partition("/")[0]
        if place not in allowed:
            set_key("net.private_allow", json.dumps([*allowed, place]))
        start = "docker compose --profile scrapling up -d" if place == SCRAPLING_SERVICE else f"start it at {url}"
        first = f"next: {start}; then"
    set_key(f"tools.mcp.{name}", json.dumps(entry))
    echo(f"{first} `supaclaw tools test`, and `supaclaw tools confirm {name}`")
