"""`supaclaw tools add`: MCP servers that are known here, as entries of config.json."""

import json
import os
from enum import StrEnum
from typing import Annotated

import typer

from gateway.cli.console import echo
from gateway.cli.process.config import set as set_key
from gateway.config import edit
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct

SERVICE = "scrapling:8000"
"""In docker-compose.yml."""


class Known(StrEnum):
    """Servers that can be added by name."""

    WEB_FETCH = "web-fetch"


def add(
    name: Annotated[Known, typer.Argument(help="web-fetch: pages that need a browser, read by scrapling.")],
    url: Annotated[str, typer.Option(help="Where it listens.")] = f"http://{SERVICE}/mcp",
) -> None:
    """Add an MCP server that is known here to config.json."""
    path = Environment.read(os.environ).config
    servers = edit.get(path, "tools.mcp", os.environ)
    if isinstance(servers, dict) and name in servers:
        raise OwnerMustAct(f"tools.mcp.{name} is there already; `supaclaw config set` changes it")
    private = edit.get(path, "net.private_allow", os.environ)
    known = [str(each) for each in private] if isinstance(private, list) else []
    place = url.partition("://")[2].partition("/")[0]
    if place not in known:
        set_key("net.private_allow", json.dumps([*known, place]))
    set_key(f"tools.mcp.{name}", json.dumps({"url": url}))
    start = "docker compose --profile scrapling up -d" if place == SERVICE else f"start it at {url}"
    echo(f"next: {start}; then `supaclaw tools test`, and `supaclaw tools confirm {name}`")
