"""`supaclaw mcp-serve`: relay MCP messages between a program's standard input and output and the running gateway."""

import json
import os
import sys
from http.client import HTTPException
from typing import Annotated
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import typer

from gateway.cli.connections.local_gateway import gateway_address, local_token
from gateway.config.environment import Environment
from gateway.domain.errors import SupaclawError
from gateway.domain.json import json_or_text

TOKEN = "SUPACLAW_TOKEN"
TIMEOUT_SECONDS = 3_600.0
"""As long as the longest turn that `ask` waits for."""
ERROR_CODE = -32000
Url = Annotated[str | None, typer.Option(metavar="URL", help="The gateway's address (default: this machine's).")]


def mcp_serve(url: Url = None) -> None:
    """Serve memory, tasks and `ask` over MCP by stdio.

    The Model Context Protocol runs over standard input and output.

    Set SUPACLAW_TOKEN to a token, whose scopes decide on the tools. Without it, the program is the agent "mcp", which
    may read your memory.
    """
    environment, version = Environment.read(os.environ), ""
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        try:
            address = url or gateway_address(environment)
            token = os.environ.get(TOKEN) or local_token(environment)
            answer = _post(f"{address.rstrip('/')}/mcp", token, line, version)
        except (SupaclawError, OSError, HTTPException, ValueError) as error:
            answer = _failure(line, f"the gateway does not answer ({error}); `supaclaw up` starts it")
        version = _protocol_version(answer) or version
        if answer.strip():
            sys.stdout.buffer.write(answer.strip() + b"\n")
            sys.stdout.buffer.flush()


def _post(url: str, token: str, message: bytes, version: str) -> bytes:
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    if version:
        headers["MCP-Protocol-Version"] = version
    try:
        with urlopen(Request(url, message, headers), timeout=TIMEOUT_SECONDS) as answer:
            return bytes(answer.read())
    except HTTPError as error:
        with error:
            body = bytes(error.read())
        match json_or_text(body.decode(errors="replace")):
            case {"jsonrpc": "2.0"}:
                return body
            case {"error": {"message": str(reason)}}:
                return _failure(message, reason)
        return _failure(message, f"HTTP {error.code}")


def _failure(message: bytes, reason: str) -> bytes:
    """The error response to a request; empty for a notification, which gets none."""
    match json_or_text(message.decode(errors="replace")):
        case {"id": id}:
            return json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": ERROR_CODE, "message": reason}}).encode()
    return b""


def _protocol_version(answer: bytes) -> str:
    """The version in the answer to an initialize request; empty for other answers."""
    match json_or_text(answer.decode(errors="replace")):
        case {"result": {"protocolVersion": str(version)}}:
            return version
    return ""
