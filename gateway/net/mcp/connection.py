"""One connection to an MCP server, with the official client over the guarded one. Imports both, so: in a thread.

A task of its own holds it open, because its streams have to be closed by the task that opened them. It ends after
some minutes without a call; whatever breaks it ends it, too, and the next call makes a new one.
"""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from time import monotonic
from typing import TypeVar

from anyio import BrokenResourceError, ClosedResourceError
from httpx2 import HTTPError, Request, Response
from mcp import ClientSession, MCPError, types
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from gateway.domain.json import JsonObject
from gateway.domain.text.texts import one_line
from gateway.net import client
from gateway.net.bodies import Limits
from gateway.net.errors import NetError
from gateway.net.mcp.definition import MAX_BYTES, Definition, public_url
from gateway.net.mcp.endpoint import Answer, Blob, Endpoint, ServerError
from gateway.net.mcp.stdio import stdio

T = TypeVar("T")

MAX_TOOLS, MAX_PAGES, MAX_STREAMS = 200, 20, 10
MAX_ANSWER = 20 * 2**20
"""Bytes."""
CONNECT_SECONDS, IDLE_SECONDS, FRESH_SECONDS = 15.0, 300.0, 30.0
"""How long its list of tools counts as seen: older, it's read again before a call, which also shows that it lives."""


@dataclass(eq=False)
class Connection:
    """Use `open`; then its methods raise `NetError`, `ServerError` where the words are the server's."""

    endpoint: Endpoint
    rules: client.FindRules
    tools: Mapping[str, Definition] = field(default_factory=dict, init=False)
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
            found, cursor = dict[str, Definition](), None
            for _ in range(MAX_PAGES):
                page = await self._asked(session.list_tools(params=types.PaginatedRequestParams(cursor=cursor)))
                found |= {
                    each.name: each for each in map(self._definition, page.tools) if len(each.content) < MAX_BYTES
                }
                if not (cursor := page.next_cursor) or len(found) > MAX_TOOLS:
                    break
        self.tools, self._listed = dict(list(found.items())[:MAX_TOOLS]), monotonic()
        return True

    async def call(self, name: str, arguments: JsonObject) -> Answer:
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
            async with stdio(self.endpoint.name, launch, MAX_ANSWER) as streams:
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
            raise ServerError("server_error", _refusal(self.endpoint.host, error.message)) from error
        except (ValueError, RuntimeError) as error:
            self._ended.set()
            raise NetError("bad_answer", f"{self.endpoint.host} did not answer as an MCP server does.") from error

    def _definition(self, tool: types.Tool) -> Definition:
        url, name = public_url(self.endpoint.url), self.endpoint.name
        return Definition(name, url, tool.name, tool.description or "", tool.input_schema)


def _refusal(host: str, message: str) -> str:
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
            return ServerError("server_error", _refusal(host, error.message))
    return NetError("bad_answer", f"{host} did not answer as an MCP server does ({type(error).__name__}).")


def _answer(result: types.CallToolResult) -> Answer:
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
    return Answer("\n".join(texts), tuple(blobs), None if texts else result.structured_content, result.is_error)


def _blob(data: str, mime: str | None) -> list[Blob]:
    with suppress(binascii.Error, ValueError):
        return [Blob(mime or "", base64.b64decode(data))]
    return []
