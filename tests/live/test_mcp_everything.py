"""The reference server of the Model Context Protocol, from npm: `make mcp` installs it in build/."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.net.addresses import Rules
from gateway.net.errors import NetError
from gateway.net.mcp.connections import Connections
from gateway.net.mcp.server import McpEndpoint

SERVER = Path("build/mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not SERVER.exists() or not shutil.which("node"), reason="`make mcp` installs the server"),
]


@pytest.fixture
async def address() -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {**os.environ, "PORT": str(port)}
    quiet = asyncio.subprocess.DEVNULL
    server = await asyncio.create_subprocess_exec(
        "node", str(SERVER), "streamableHttp", env=environ, stdout=quiet, stderr=quiet
    )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        await server.wait()


async def test_its_tools_are_listed_and_called(address: str) -> None:
    connections = Connections(lambda: Rules.of([address]))
    endpoint = McpEndpoint("everything", f"http://{address}/mcp")
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    connection, _ = await connections.get("ada", endpoint)
                    break
                except NetError:
                    await asyncio.sleep(0.2)
        echoed = await connection.call("echo", {"message": "hi"})
        added = await connection.call("get-sum", {"a": 2, "b": 40})
        picture = await connection.call("get-tiny-image", {})
        bad = await connection.call("get-sum", {"a": "two"})
    finally:
        await connections.close()

    assert len(connection.tools) >= 10
    assert all(tool.shown_parameters["type"] == "object" for tool in connection.tools.values())
    assert "hi" in echoed.text
    assert "42" in added.text
    assert [blob.mime for blob in picture.blobs] == ["image/png"]
    assert picture.blobs[0].data.startswith(b"\x89PNG")
    assert bad.failed
