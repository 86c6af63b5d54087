"""Everything that opens a connection is on this list, with its reason; the rest goes through `gateway/net`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ALLOWED = {
    "gateway/net": "the guarded client (also for the indexes of skills and servers), the MCP client over it, and ddgs",
    "gateway/net/object_store.py": "the operator's object store, whose addresses are checked before each use",
    "gateway/llm/protocol/http.py": "endpoints of models, by the operator's configuration",
    "gateway/llm/protocol/bounds.py": "bounds for litellm's clients, none of its own",
    "gateway/llm/local_servers.py": "asks the model servers on this machine or where the operator says",
    "gateway/llm/providers/openai.py": "endpoints of models, through http.py",
    "gateway/llm/providers/litellm.py": "endpoints of models, by the operator's configuration",
    "gateway/store": "the operator's database; one that a tool file declares, by addresses that net/addresses checked",
    "gateway/app/gateway.py": "listens for the page",
    "gateway/app/waiting.py": "listens for the page while the database is away",
    "gateway/app/local.py": "listens for this machine, or for the proxy whose networks the operator names",
    "gateway/web/server.py": "listens for the page",
    "gateway/sandbox": "pairs of sockets between the gateway and the jail of commands; no address",
    "gateway/background/upkeep/health.py": "tells systemd over its socket",
    # `supaclaw update`, and with `update.check` doctor and Health, have uv or git ask where the program came from.
    "gateway/cli": "asks the gateway of this machine",
    "integrations/openclaw": "asks the SupaClaw gateway that the operator named",
    "channels/telegram": "Telegram, or the operator's Bot API server; a file's path is appended to that address",
    "channels/slack": "Slack's own hosts, or the configured one; no redirect is followed",
    "channels/whatsapp": "asks whether WhatsApp can be reached; its SDK does the rest, on WhatsApp's hosts",
}
"""A file or a folder, and why none of its addresses comes from a model, a message, a skill, a server or a page."""

CLIENTS = {
    "socket", "http.client", "urllib.request", "urllib3", "ftplib", "smtplib", "imaplib", "poplib", "xmlrpc", "aiohttp",
    "httpx", "httpx2", "httpcore", "httpcore2", "requests", "websockets", "anyio", "trio", "pycurl", "primp", "ddgs",
    "curl_cffi", "asyncpg", "psycopg", "redis", "grpc", "paramiko", "boto3", "obstore", "dns", "aiogram", "slack_sdk",
    "slack_bolt", "neonize", "litellm", "openai", "anthropic", "websocket", "mcp.client", "trafilatura.downloads",
    "opentelemetry.exporter",
}  # fmt: skip
CALLS = {
    "open_connection", "open_unix_connection", "create_connection", "create_unix_connection", "sock_connect", "urlopen",
    "create_datagram_endpoint", "fetch_url", "fetch_response", "urlretrieve", "start_server", "start_unix_server",
}  # fmt: skip


def sources() -> list[Path]:
    return sorted(path for top in ("gateway", "channels", "integrations") for path in (ROOT / top).rglob("*.py"))


def connections(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Where a module imports a client, by whatever form of import, or calls what connects."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, client) for name in names if (client := _client(name.name)))
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found = {_client(module), *(_client(f"{module}.{name.name}") for name in names)} - {None}
                yield from ((node.lineno, str(client)) for client in found)
            case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str(name)), *_]):
                if client := _client(name):
                    yield node.lineno, client
            case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield node.lineno, name
            case ast.keyword(arg="follow_redirects" | "allow_redirects", value=ast.Constant(value=True)):
                yield node.value.lineno, "redirects that nobody checks"
            case _:
                pass


def _client(module: str) -> str | None:
    return next((client for client in CLIENTS if module == client or module.startswith(f"{client}.")), None)


def in_type_checking(tree: ast.Module) -> set[int]:
    """Lines that only type checkers read."""
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {line for guard in guards for node in guard.body for line in range(node.lineno, (node.end_lineno or 0) + 1)}


def found(path: Path) -> list[str]:
    tree = ast.parse(path.read_text("utf-8"))
    unread = in_type_checking(tree)
    name = path.relative_to(ROOT).as_posix()
    return [f"{name}:{line} {what}" for line, what in connections(tree) if line not in unread]


def test_nothing_else_opens_a_connection() -> None:
    elsewhere = [hit for path in sources() for hit in found(path) if not _allowed(path)]

    assert elsewhere == [], "go through gateway/net (net.fetch.get, net.client.guarded), or say why not in ALLOWED"


def test_the_list_names_nothing_that_is_gone() -> None:
    used = {entry for path in sources() if found(path) for entry in ALLOWED if _under(path, entry)}

    assert sorted(set(ALLOWED) - used) == []


def test_no_redirect_is_followed_by_a_library() -> None:
    assert [hit for path in sources() for hit in found(path) if hit.endswith("checks")] == []


@pytest.mark.parametrize(
    "code",
    [
        "import socket",
        "import urllib.request as r",
        "from urllib import request",
        "from urllib.request import urlopen",
        "from http import client",
        "import httpx2",
        "def f():\n    from aiohttp import ClientSession",
        "import asyncio\nasyncio.open_connection('x', 1)",
        "loop.create_connection(None)",
        "from asyncio import open_connection as o\nfrom mcp import client",
        "from importlib import import_module\nimport_module('requests')",
        "__import__('websockets')",
        "from mcp.client.streamable_http import streamable_http_client",
        "http.get(url, follow_redirects=True)",
        "from trafilatura import fetch_url\nfetch_url('x')",
    ],
)
def test_every_way_is_seen(code: str) -> None:
    assert list(connections(ast.parse(code))) != []


@pytest.mark.parametrize(
    "code", ["from urllib.parse import urlsplit", "import asyncio", "from gateway.store import requests"]
)
def test_what_connects_to_nothing_is_not(code: str) -> None:
    assert list(connections(ast.parse(code))) == []


def _allowed(path: Path) -> bool:
    return any(_under(path, entry) for entry in ALLOWED)


def _under(path: Path, entry: str) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return name == entry or name.startswith(f"{entry}/")
