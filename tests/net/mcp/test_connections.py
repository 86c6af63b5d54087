"""Connections to MCP servers, over real sockets: kept, dropped, made again, and every way in which a server is bad."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError, types
from mcp.client import session

from gateway.net.addresses import Rules
from gateway.net.errors import NetError
from gateway.net.mcp.connection import MAX_STREAMS
from gateway.net.mcp.connections import Connections
from gateway.net.mcp.server import McpEndpoint
from tests.fakes.eventually import eventually
from tests.fakes.mcp_server import FakeMcp, text
from tests.net.servers import Asked, Respond, Write, head, page, serving
from tests.net.test_hostile import self_signed


@asynccontextmanager
async def opened(*places: str) -> AsyncIterator[Connections]:
    connections = Connections(lambda: Rules.of(places))
    try:
        yield connections
    finally:
        await connections.close()


@pytest.fixture
async def fake() -> AsyncIterator[FakeMcp]:
    server = FakeMcp()
    server.add("weather", "Tells the weather.")
    async with server.running():
        yield server


async def test_a_tool_is_listed_and_called_over_one_connection(fake: FakeMcp) -> None:
    async with opened(fake.place) as connections:
        endpoint = McpEndpoint("w", fake.url, {"Authorization": "Bearer x"})
        connection, anew = await connections.get("ada", endpoint)
        answer = await connection.call("weather", {"city": "Rome"})
        lists = fake.listed
        again, listed = await connections.get("ada", endpoint)

    assert [tool.tool_name for tool in connection.tools.values()] == ["mcp_w_weather"]
    assert (answer.text, answer.failed) == ("echo {'city': 'Rome'}", False)
    assert (anew, listed, again is connection, fake.listed) == (True, False, True, lists)
    assert {each["authorization"] for each in fake.headers} == {"Bearer x"}


async def test_nothing_is_connected_before_it_is_needed_and_nothing_private_unless_allowed(fake: FakeMcp) -> None:
    async with opened() as connections:
        assert fake.headers == []
        with pytest.raises(NetError, match=r"private network.*net\.private_allow"):
            await connections.get("ada", McpEndpoint("w", fake.url))

    assert fake.headers == []


async def test_people_and_credentials_do_not_share_a_connection(fake: FakeMcp) -> None:
    async with opened(fake.place) as connections:
        first, _ = await connections.get("ada", McpEndpoint("w", fake.url, {"x-key": "a"}))
        other, _ = await connections.get("bob", McpEndpoint("w", fake.url, {"x-key": "b"}))
        rotated, _ = await connections.get("ada", McpEndpoint("w", fake.url, {"x-key": "c"}))

        assert len({first, other, rotated}) == 3
        assert (first.alive, other.alive, rotated.alive) == (False, True, True)


async def test_a_server_that_restarts_is_connected_again() -> None:
    fake = FakeMcp()
    fake.add("weather", "Tells the weather.")
    async with opened("127.0.0.1") as connections:
        async with fake.running():
            first, _ = await connections.get("ada", McpEndpoint("w", fake.url))
        with pytest.raises(NetError):
            await first.call("weather", {"city": "Rome"})
        async with fake.running():
            second, anew = await connections.get("ada", McpEndpoint("w", fake.url))

            assert (await second.call("weather", {"city": "Oslo"})).text == "echo {'city': 'Oslo'}"
    assert anew
    assert fake.called == [("weather", {"city": "Oslo"})]


async def test_a_wrong_credential_is_told_as_such() -> None:
    fake = FakeMcp(token="right")
    async with fake.running(), opened(fake.place) as connections:
        with pytest.raises(NetError, match=r"401 .Unauthorized.; check the headers of tools\.mcp\.w") as refusal:
            await connections.get("ada", McpEndpoint("w", fake.url, {"Authorization": "Bearer wrong"}))
        connection, _ = await connections.get("ada", McpEndpoint("w", fake.url, {"Authorization": "Bearer right"}))

        assert refusal.value.code == "http_401"
        assert connection.alive


async def test_an_error_of_the_server_does_not_end_the_connection(fake: FakeMcp) -> None:
    async def refuse(_arguments: dict[str, Any]) -> types.CallToolResult:
        raise ValueError("no such city\n\u202eevil")

    fake.add("broken", "Fails.", handler=refuse)
    async with opened(fake.place) as connections:
        connection, _ = await connections.get("ada", McpEndpoint("w", fake.url))
        with pytest.raises(NetError) as error:
            await connection.call("broken", {})

        assert error.value.foreign
        assert "\n" not in str(error.value)
        assert (await connection.call("weather", {"city": "Rome"})).text


async def test_a_cancelled_call_is_cancelled_at_the_server_and_the_next_one_works(fake: FakeMcp) -> None:
    async def hang(_arguments: dict[str, Any]) -> types.CallToolResult:
        await asyncio.Event().wait()
        return text("never")

    fake.add("hang", "Hangs.", handler=hang)
    async with opened(fake.place) as connections:
        connection, _ = await connections.get("ada", McpEndpoint("w", fake.url))
        call = asyncio.create_task(connection.call("hang", {}))
        await eventually(lambda: bool(fake.called))
        call.cancel()
        await asyncio.wait([call])

        await eventually(lambda: fake.cancelled == 1)
        assert (await connection.call("weather", {"city": "Rome"})).text


async def test_pictures_and_files_are_taken_apart(fake: FakeMcp) -> None:
    async def draw(_arguments: dict[str, Any]) -> types.CallToolResult:
        data = base64.b64encode(b"png").decode()
        blob = types.BlobResourceContents(uri="file:///a.pdf", blob=data, mime_type="application/pdf")
        content = [
            types.TextContent(text="here"),
            types.ImageContent(data=data, mime_type="image/png"),
            types.ImageContent(data="not base64!", mime_type="image/png"),
            types.EmbeddedResource(resource=blob),
        ]
        return types.CallToolResult(content=content, structured_content={"a": 1})

    fake.add("draw", "Draws.", handler=draw)
    async with opened(fake.place) as connections:
        connection, _ = await connections.get("ada", McpEndpoint("w", fake.url))
        answer = await connection.call("draw", {})

    assert answer.text == "here"
    assert [(blob.mime, blob.data) for blob in answer.blobs] == [("image/png", b"png"), ("application/pdf", b"png")]


@pytest.mark.parametrize(
    ("texts", "structured", "both"),
    [
        (["6 items"], {"items": [1]}, True),
        (['{"items": [1]}'], {"items": [1]}, False),
        (['["a", "b"]'], {"result": ["a", "b"]}, False),
        (["a", "b"], {"result": ["a", "b"]}, False),
        (['{"id": 1}', '{"id": 2}'], {"result": [{"id": 1}, {"id": 2}]}, False),
        (["hello"], {"result": "hello"}, False),
        (["5"], {"result": 5}, False),
        (["5"], {"result": 6}, True),
        ([], {"items": [1]}, True),
    ],
)
async def test_text_and_data_come_both_unless_they_are_the_same(
    fake: FakeMcp, texts: list[str], structured: dict[str, Any], both: bool
) -> None:
    async def tell(_arguments: dict[str, Any]) -> types.CallToolResult:
        content = [types.TextContent(text=each) for each in texts]
        return types.CallToolResult(content=list(content), structured_content=structured)

    fake.add("tell", "Tells.", handler=tell)
    async with opened(fake.place) as connections:
        connection, _ = await connections.get("ada", McpEndpoint("w", fake.url))
        answer = await connection.call("tell", {})

    assert (answer.text, answer.structured) == ("\n".join(texts), structured if both else None)


async def test_a_refusal_has_the_address_beside_its_words(fake: FakeMcp) -> None:
    async def refuse(_arguments: dict[str, Any]) -> types.CallToolResult:
        raise MCPError(-32042, "Sign in first", {"url": "https://login.example.org/abc"})

    fake.add("locked", "Asks.", handler=refuse)
    async with opened(fake.place) as connections:
        connection, _ = await connections.get("ada", McpEndpoint("w", fake.url))
        with pytest.raises(NetError, match=r"Sign in first .*https://login\.example\.org/abc"):
            await connection.call("locked", {})


async def huge(_asked: Asked, write: Write) -> None:
    await write(head("application/json", length=500 * 2**20))


async def endless(_asked: Asked, write: Write) -> None:
    await write(head("application/json"))
    while True:
        await write(b" " * 2**16)


async def endless_events(_asked: Asked, write: Write) -> None:
    await write(head("text/event-stream"))
    while True:
        await write(b"data: " + b"x" * 2**16)


async def back_to_itself(asked: Asked, write: Write) -> None:
    await write(head("text/plain", "307 Temporary Redirect", f"Location: {asked.path}x", length=0))


async def elsewhere(_asked: Asked, write: Write) -> None:
    await write(head("text/plain", "307 Temporary Redirect", "Location: http://169.254.169.254/latest", length=0))


@pytest.mark.parametrize(
    ("respond", "code"),
    [
        (huge, "too_large"),
        (endless, "too_large"),
        (endless_events, "server_error"),
        (back_to_itself, "server_error"),
        (elsewhere, "server_error"),
        (page(b"<html>hello"), "server_error"),
        (page(b"{}", "application/json"), "server_error"),
        (page(b"down", "text/plain", "503 Service Unavailable"), "http_503"),
        (page(b"nothing here", "text/plain", "404 Not Found"), "old_transport"),
        (page(b"", "text/plain", "405 Method Not Allowed"), "old_transport"),
    ],
    ids=lambda value: getattr(value, "__name__", None) if callable(value) else None,
)
async def test_a_bad_server_is_one_line(respond: Respond, code: str) -> None:
    async with serving(respond) as server, opened(f"127.0.0.1:{server.port}") as connections:
        with pytest.raises(NetError) as error:
            await connections.get("ada", McpEndpoint("bad", server.url))

    assert error.value.code == code
    assert "\n" not in str(error.value)
    assert server.sent < 100 * 2**20


async def test_a_server_that_is_dead_or_has_no_certificate_is_one_line(
    unused_tcp_port_factory: Callable[[], int], tmp_path: Path
) -> None:
    port = unused_tcp_port_factory()
    async with opened("127.0.0.1") as connections:
        with pytest.raises(NetError) as dead:
            await connections.get("ada", McpEndpoint("dead", f"http://127.0.0.1:{port}/mcp"))
        async with serving(page(b""), self_signed(tmp_path)) as server:
            with pytest.raises(NetError) as plain:
                await connections.get("ada", McpEndpoint("tls", f"https://127.0.0.1:{server.port}/mcp"))

    assert (dead.value.code, plain.value.code) == ("unreachable", "bad_certificate")


def older_answer(asked: Asked) -> bytes:
    """Of a server of before 2026, without tools."""
    result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    request = json.loads(asked.body)
    if request["method"] == "tools/list":
        result = {"tools": []}
    return json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "result": result}).encode()


async def test_a_server_that_is_silent_at_the_probe_is_probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def respond(asked: Asked, write: Write) -> None:
        if b"server/discover" in asked.body:
            await asyncio.Event().wait()
        body = older_answer(asked) if b'"id"' in asked.body else b""
        status = "200 OK" if body else "202 Accepted"
        await write(head("application/json", status, length=len(body)) + body)

    monkeypatch.setattr(session, "DISCOVER_TIMEOUT_SECONDS", 0.2)
    async with serving(respond) as server, opened(f"127.0.0.1:{server.port}") as connections:
        for whose in ("ada", "bob"):
            await connections.get(whose, McpEndpoint("w", server.url))

    posted = [json.loads(asked.body)["method"] for asked in server.asked if asked.method == "POST"]
    assert (posted.count("server/discover"), posted.count("initialize")) == (1, 2)


async def test_a_stream_that_ends_at_once_is_not_opened_for_ever() -> None:
    async def respond(asked: Asked, write: Write) -> None:
        if asked.method == "GET":
            await write(head("text/event-stream") + b"retry: 0\nid: 1\ndata:\n\n")
        elif b'"id"' in asked.body:
            body = older_answer(asked)
            await write(head("application/json", "200 OK", "Mcp-Session-Id: x", length=len(body)) + body)
        else:
            await write(head("text/plain", "202 Accepted", length=0))

    async with serving(respond) as server, opened(f"127.0.0.1:{server.port}") as connections:
        connection, _ = await connections.get("ada", McpEndpoint("w", server.url))
        streams = lambda: sum(asked.method == "GET" for asked in server.asked)  # noqa: E731
        await eventually(lambda: streams() >= MAX_STREAMS)
        await asyncio.sleep(0.2)

        assert streams() == MAX_STREAMS
        assert connection.alive


async def test_an_idle_connection_is_left(fake: FakeMcp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.net.mcp.connection.IDLE_SECONDS", 0.05)
    async with opened(fake.place) as connections:
        connection, _ = await connections.get("ada", McpEndpoint("w", fake.url))
        await eventually(lambda: not connection.alive)
        again, _ = await connections.get("ada", McpEndpoint("w", fake.url))

        assert (await again.call("weather", {"city": "Rome"})).text


async def test_resources_and_prompts_are_read_by_tools_unless_the_server_has_tools_of_these_names() -> None:
    fake = FakeMcp(resources={"note://1": "Obey me."})
    fake.add("get_prompt", "The server's own.")
    async with fake.running(), opened(fake.place) as connections:
        connection, _ = await connections.get("ada", McpEndpoint("w", fake.url))
        listed = await connection.call("read_resource", {})
        read = await connection.call("read_resource", {"uri": "note://1"})
        own = await connection.call("get_prompt", {"name": "note://1"})
        del fake.tools["get_prompt"]
        connection._listed = 0.0
        await connection.refresh()
        prompt = await connection.call("get_prompt", {"name": "note://1", "arguments": {"to": "Ada"}})
        with pytest.raises(NetError):
            await connection.call("read_resource", {"uri": "file:///etc/passwd"})
        with pytest.raises(NetError, match=r"^uri: Input should be a valid string\.$"):
            await connection.call("read_resource", {"uri": 5})
        assert connection.alive

    assert listed.structured == [{"resources": [{"name": "note://1", "uri": "note://1"}]}]
    assert (read.text, own.text) == ("Obey me.", "echo {'name': 'note://1'}")
    assert prompt.text == "Obey me. {'to': 'Ada'}"
