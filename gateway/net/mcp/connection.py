"""One connection to an MCP server, with the official client over the guarded one, or over the input and output of a
process in the jail. Imports both clients, so: in a thread.

A task of its own holds it open, because its streams have to be closed by the task that opened them. It ends after
some minutes without a call; whatever breaks it ends it, too, and the next call makes a new one."""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from time import monotonic
from typing import TypeAlias, TypeVar

from anyio import BrokenResourceError, ClosedResourceError, create_memory_object_stream, create_task_group
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from httpx2 import HTTPError, Request, Response
from mcp import ClientSession, MCPError, types
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from gateway.domain.json import JsonObject
from gateway.domain.text.texts import one_line
from gateway.net import client
from gateway.net.client import Limits
from gateway.net.errors import NetError
from gateway.net.mcp.server import MAX_BYTES, Blob, McpEndpoint, McpResult, ServerError, ToolDefinition, public_url
from gateway.sandbox.command import Ending
from gateway.sandbox.workshop import Running

T = TypeVar("T")

MAX_TOOLS, MAX_PAGES, MAX_STREAMS = 200, 20, 10
MAX_ANSWER = 20 * 2**20
"""Bytes."""
CONNECT_SECONDS, IDLE_SECONDS, FRESH_SECONDS = 15.0, 300.0, 30.0
"""How long its list of tools counts as seen: older, it's read again before a call, which also shows that it lives."""


@dataclass(eq=False)
class Connection:
    """Use `open`; then its methods raise `NetError`, `ServerError` where the words are the server's."""

    endpoint: McpEndpoint
    rules: client.FindRules
    tools: Mapping[str, ToolDefinition] = field(default_factory=dict, init=False)
    """By their own names, as last listed."""
    _listed: float = field(default=0.0, init=False)
    _streams: int = field(default=0, init=False)
    _failure: NetError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._busy, self._used, self._ended = 0, asyncio.Event(), asyncio.Event()
        self._ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name=f"mcp {self.endpoint.name}")
        self._task.add_done_callback(self._over)

    @property
    def alive(self) -> bool:
        """Whether a call can be tried."""
        return not self._task.done() and not self._ended.is_set()

    async def refresh(self) -> bool:
        """Connect and list the tools, unless that was done just now; whether it was done."""
        if self.tools and monotonic() - self._listed < FRESH_SECONDS:
            return False
        async with self._session(CONNECT_SECONDS) as session:
            found, cursor = dict[str, ToolDefinition](), None
            for _ in range(MAX_PAGES):
                page = await self._asked(session.list_tools(params=types.PaginatedRequestParams(cursor=cursor)))
                found |= {
                    each.name: each for each in map(self._definition, page.tools) if len(each.content) < MAX_BYTES
                }
                if not (cursor := page.next_cursor) or len(found) > MAX_TOOLS:
                    break
        self.tools, self._listed = dict(list(found.items())[:MAX_TOOLS]), monotonic()
        return True

    async def call(self, name: str, arguments: JsonObject) -> McpResult:
        """What the tool answers; cancelling it tells the server."""
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=dict(arguments)))
        async with self._session(None) as session:
            # Not `session.call_tool`, which compiles a schema of the server's to check the server's own answer.
            return _answer(await self._asked(session.send_request(request, types.CallToolResult)))

    async def close(self) -> None:
        """Tell the server that the session is over, but do not wait long for that."""
        self._ended.set()
        self._used.set()
        await asyncio.wait([self._task], timeout=2.0)
        self._task.cancel()
        await asyncio.wait([self._task])

    @asynccontextmanager
    async def _session(self, seconds: float | None) -> AsyncIterator[ClientSession]:
        self._busy += 1
        try:
            async with asyncio.timeout(seconds):
                yield await asyncio.shield(self._ready)
        except TimeoutError:
            self._task.cancel()
            raise NetError("timeout", f"{self.endpoint.host} took too long; try again later.") from None
        finally:
            self._busy -= 1
            self._used.set()

    async def _live(self) -> None:
        async with self._opened() as session:
            self._ready.set_result(session)
            while not self._ended.is_set():
                self._used.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._used.wait(), IDLE_SECONDS)
                    continue
                if not self._busy:
                    return

    def _over(self, task: asyncio.Task[None]) -> None:
        self._ended.set()
        if not task.cancelled() and (error := task.exception()):
            self._failure = _reason(error, self.endpoint.host)
        if not self._ready.done():
            self._ready.set_exception(self._failure or NetError("closed", "The connection was closed."))
            self._ready.exception()  # nobody may be waiting for it

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[ClientSession]:
        about = types.Implementation(name="supaclaw", version=version("supaclaw"))
        async with self._streams_opened() as (read, write), ClientSession(read, write, client_info=about) as session:
            await session.initialize()
            yield session

    @asynccontextmanager
    async def _streams_opened(self) -> AsyncIterator[TransportStreams]:
        if launch := self.endpoint.launch:
            async with process_streams(self.endpoint.name, launch, MAX_ANSWER) as streams:
                yield streams
            return
        limits = Limits(MAX_ANSWER, None)
        async with client.guarded(self.rules, limits, self.endpoint.headers) as http:
            http.event_hooks, http.max_redirects = {"request": [self._count], "response": [self._check]}, 5
            url = self.endpoint.url
            async with streamable_http_client(url, http_client=http, max_sse_event_size=MAX_ANSWER) as streams:
                yield streams

    async def _count(self, request: Request) -> None:
        """The client opens a stream again as often and as soon as the server likes."""
        self._streams += request.method == "GET"
        if self._streams > MAX_STREAMS:
            raise NetError("too_many_streams", f"{self.endpoint.host} ends its streams too often.")

    async def _check(self, response: Response) -> None:
        """The client tells no status apart, so it's done here, for what no other request will change."""
        status = response.status_code
        if response.request.method != "POST" or not (status in (401, 403, 429) or status >= 500):
            return
        words = HTTPStatus(status).phrase if status in set(HTTPStatus) else "unknown"
        hint = f"; check the headers of tools.mcp.{self.endpoint.name}" if status in (401, 403) else ""
        raise NetError(f"http_{status}", f"{self.endpoint.host} answered {status} ({words}){hint}.")

    async def _asked(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except (MCPError, ClosedResourceError, BrokenResourceError) as error:
            if self._ended.is_set() or not isinstance(error, MCPError) or error.code == types.CONNECTION_CLOSED:
                await asyncio.wait([self._task], timeout=1.0)
                self._ended.set()
                raise self._failure or NetError("dropped", f"{self.endpoint.host} closed the connection.") from error
            raise ServerError("server_error", _refusal_text(self.endpoint.host, error.message)) from error
        except (ValueError, RuntimeError) as error:
            self._ended.set()
            raise NetError("bad_answer", f"{self.endpoint.host} did not answer as an MCP server does.") from error

    def _definition(self, tool: types.Tool) -> ToolDefinition:
        url, name = public_url(self.endpoint.url), self.endpoint.name
        return ToolDefinition(name, url, tool.name, tool.description or "", tool.input_schema)


def _refusal_text(host: str, message: str) -> str:
    return f"{host} refused: {one_line(message, 300)}"


def _reason(error: BaseException, host: str) -> NetError:
    match error:
        case BaseExceptionGroup():
            return _reason(error.exceptions[0], host)
        case NetError():
            return error
        case HTTPError():
            return client.explanation(host, error)
        case MCPError():
            return ServerError("server_error", _refusal_text(host, error.message))
    return NetError("bad_answer", f"{host} did not answer as an MCP server does ({type(error).__name__}).")


def _answer(result: types.CallToolResult) -> McpResult:
    texts, blobs = list[str](), list[Blob]()
    for block in result.content:
        match block:
            case types.TextContent(text=text):
                texts.append(text)
            case types.ImageContent(data=data, mime_type=mime) | types.AudioContent(data=data, mime_type=mime):
                blobs += _blob(data, mime)
            case types.ResourceLink(uri=uri, name=name):
                texts.append(f"[{name}]({uri})")
            case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
                texts.append(text)
            case types.EmbeddedResource(resource=types.BlobResourceContents(blob=data, mime_type=mime)):
                blobs += _blob(data, mime)
    return McpResult("\n".join(texts), tuple(blobs), None if texts else result.structured_content, result.is_error)


def _blob(data: str, mime: str | None) -> list[Blob]:
    with suppress(binascii.Error, ValueError):
        return [Blob(mime or "", base64.b64decode(data))]
    return []


MAX_BAD_LINES = 100
"""Of what isn't a message: some servers write their log there."""
_LAST_WORDS = 2_000
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@asynccontextmanager
async def process_streams(name: str, launch: Callable[[], Awaitable[Running]], longest: int) -> AsyncIterator[Streams]:
    """Start it, and end it and all it started afterwards. `longest`: bytes of a message, in either direction."""
    running = await launch()
    arriving, read = create_memory_object_stream[SessionMessage | Exception](0)
    write, leaving = create_memory_object_stream[SessionMessage](0)
    process = _Process(name, running, longest)
    try:
        async with create_task_group() as group, arriving, read, write, leaving:
            group.start_soon(process.drain)
            group.start_soon(process.receive, arriving)
            group.start_soon(process.send, leaving)
            yield read, write
            group.cancel_scope.cancel()
    finally:
        running.close()


class _Process:
    def __init__(self, name: str, running: Running, longest: int) -> None:
        self._name, self._running, self._longest, self._words = name, running, longest, b""

    async def drain(self) -> None:
        """Keep the last of its errors."""
        assert self._running.errors is not None, "they are apart"
        while piece := await self._running.errors.read(_LAST_WORDS):
            self._words = (self._words + piece)[-_LAST_WORDS:]

    async def receive(self, arriving: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Pass on its messages; raises `NetError` once it has ended, or speaks otherwise."""
        line, bad = bytearray(), 0
        async for piece in self._running.pieces():
            *ended, rest = (bytes(line) + piece).split(b"\n") if b"\n" in piece else (piece,)
            if not ended:
                line += rest
            else:
                line = bytearray(rest)
            if len(line) > self._longest:
                raise NetError("too_large", f"{self._name} sends more than {self._longest >> 20} MB at once.")
            for each in filter(None, ended):
                try:
                    message = types.jsonrpc_message_adapter.validate_json(each, by_name=False)
                except ValueError:
                    if (bad := bad + 1) > MAX_BAD_LINES:
                        raise NetError("bad_answer", f"{self._name} did not answer as an MCP server does.") from None
                    continue
                await arriving.send(SessionMessage(message))
        raise await self._end()

    async def send(self, leaving: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Pass on ours."""
        pipe = self._running.input
        assert pipe is not None, "it has one"
        async for each in leaving:
            body = each.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            if pipe.get_write_buffer_size() + len(body) > self._longest:
                raise NetError("not_read", f"{self._name} does not read what it is sent.")
            pipe.write(body + b"\n")

    async def _end(self) -> NetError:
        report = await self._running.report()
        await asyncio.sleep(0)  # its last words
        if report.ending is Ending.REFUSED:
            return NetError("not_started", f"{self._name} did not start: {report.problem}.")
        how = f"with code {report.code}" if report.ending is Ending.EXITED else f"({report.ending})"
        if words := one_line(self._words.decode("utf-8", "replace").strip()[-300:], 300):
            return ServerError("ended", f"{self._name} ended {how}: {words}")
        return NetError("ended", f"{self._name} ended {how}.")
