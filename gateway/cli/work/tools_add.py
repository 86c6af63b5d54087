"""`supaclaw tools add`: MCP servers that are known here, as entries of config.json."""

import json
import os
import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.console import echo
from gateway.cli.process.config import set as set_key
from gateway.config.editing import config_file
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct

SERVICE = "scrapling:8000"
"""In docker-compose.yml."""


def _entry(program: Path) -> dict[str, object]:
    """How the gateway starts one that is installed: in the jail, with its packages and its browsers."""
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


class Known(StrEnum):
    """Servers that can be added by name."""

    WEB_FETCH = "web-fetch"


def add(
    name: Annotated[Known, typer.Argument(help="web-fetch: pages that need a browser, read by scrapling.")],
    url: Annotated[
        str, typer.Option(help="Where it listens; default: the one that is installed here, else the container's.")
    ] = "",
) -> None:
    """Add an MCP server that is known here to config.json."""
    path = Environment.read(os.environ).config
    servers = config_file.get_key(path, "tools.mcp", os.environ)
    if isinstance(servers, dict) and name in servers:
        raise OwnerMustAct(f"tools.mcp.{name} is there already; `supaclaw config set` changes it")
    if not url and (installed := shutil.which("scrapling")):
        set_key(f"tools.mcp.{name}", json.dumps(_entry(Path(installed))))
        echo(
            f"the gateway starts {installed} when needed; next: `supaclaw tools test`, `supaclaw tools confirm {name}`"
        )
        return
    url = url or f"http://{SERVICE}/mcp"
    private = config_file.get_key(path, "net.private_allow", os.environ)
    known = [str(each) for each in private] if isinstance(private, list) else []
    place = url.partition("://")[2].partition("/")[0]
    if place not in known:
        set_key("net.private_allow", json.dumps([*known, place]))
    set_key(f"tools.mcp.{name}", json.dumps({"url": url}))
    start = "docker compose --profile scrapling up -d" if place == SERVICE else f"start it at {url}"
    echo(f"next: {start}; then `supaclaw tools test`, and `supaclaw tools confirm {name}`")
