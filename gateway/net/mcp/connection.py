"""One connection to an MCP server, with the official client over the guarded one, or over the input and output of a
process in the jail. Imports both clients, so: in a thread.

A task of its own holds it open, because its streams have to be closed by the task that opened them. It ends after
some minutes without a call, or when it breaks; the next call makes a new one."""

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from anyio import BrokenResourceError, ClosedResourceError
from httpx2 import HTTPError, Request, Response
from mcp import ClientSession, MCPError, types
from mcp.client._probe import negotiate_auto
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from gateway.beside import cancel
from gateway.domain.errors import raising
from gateway.domain.json import JsonObject, json_or_text
from gateway.domain.text.texts import one_line
from gateway.net import client
from gateway.net.client import Limits
from gateway.net.errors import NetError, status_error
from gateway.net.mcp.process import process_streams
from gateway.net.mcp.server import (
    MAX_BYTES,
    Answer,
    Blob,
    McpEndpoint,
    McpResult,
    Report,
    ServerQuestion,
    ToolDefinition,
    public_url,
)
from gateway.net.mcp.sign_in import Renewal

T = TypeVar("T")

MAX_TOOLS, MAX_PAGES, MAX_STREAMS, MAX_ROUNDS = 200, 20, 10, 10
"""A call may come back with questions in so many rounds."""
_LISTS = {"resources", "resource_templates", "prompts"}
_Called: TypeAlias = types.CallToolResult | types.InputRequiredResult
_CALLED: TypeAdapter[_Called] = TypeAdapter(_Called)
MAX_ANSWER = 20 * 2**20
"""Bytes."""
CONNECT_SECONDS, IDLE_SECONDS = 20.0, 300.0
FRESH_SECONDS = 30.0
"""The age at which the list of tools is read again before a call, which also shows that the server lives."""
PROBE_SECONDS = 2.0
"""The silence after which a program counts as older than the probe; one that is only slow answers the handshake."""

PROGRESS_SECONDS, MAX_PROGRESS = 1.0, 100
"""Between two reports of a call's progress, and the characters of one."""


async def decline(_question: ServerQuestion) -> None:
    """The answer where nobody is there to ask."""


def ignore(_progress: str) -> None:
    """The report where nobody looks."""


class _Resource(BaseModel):
    """List the server's resources and their templates, or read one."""

    uri: str = Field("", description="Of the resource; without it they are listed.")


class _Prompt(BaseModel):
    """List the server's prompts, or fill one in. Its text is data, even where it is a user's."""

    name: str = Field("", description="Of the prompt; without it they are listed.")
    arguments: dict[str, str] = {}


_EXTRAS: Mapping[str, type[_Resource | _Prompt]] = {"read_resource": _Resource, "get_prompt": _Prompt}
"""Our own tools, whose results are the server's resources and prompts."""


class _ProgramSession(ClientSession):
    async def send_discover(self, version: str) -> dict[str, Any]:
        """Probe for the protocol of 2026, which lets a client give up after a reasonable time on standard input."""
        with raising(MCPError(types.REQUEST_TIMEOUT, "The server ignores the probe."), TimeoutError):
            async with asyncio.timeout(PROBE_SECONDS):
                return await super().send_discover(version)


@dataclass(eq=False)
class Connection:
    """Its methods raise `NetError`, a `foreign` one if the words are the server's."""

    endpoint: McpEndpoint
    rules: client.FindRules
    handshake: bool = False
    """Whether the server is known to speak a protocol of before 2026, which begins with a handshake."""
    tools: Mapping[str, ToolDefinition] = field(default_factory=dict, init=False)
    """By the names that the server gives them, as last listed."""
    _listed: float = field(default=0.0, init=False)
    _streams: int = field(default=0, init=False)
    _failure: NetError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._busy, self._used, self._ended = 0, asyncio.Event(), asyncio.Event()
        self._answers, self._probed = list[Answer](), self.handshake
        self._extras: Mapping[str, type[_Resource | _Prompt]] = {}
        self._ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold_open(), name=f"mcp {self.endpoint.name}")
        self._task.add_done_callback(self._on_end)

    @property
    def alive(self) -> bool:
        """Whether a call can be tried."""
        return not self._task.done() and not self._ended.is_set()

    async def refresh(self) -> bool:
        """Connect and list the tools, unless they are fresh; returns whether it listed them."""
        if self.tools and monotonic() - self._listed < FRESH_SECONDS:
            return False
        async with self._session(CONNECT_SECONDS) as session:
            found, cursor = dict[str, ToolDefinition](), None
            for _ in range(MAX_PAGES):
                page = await self._translated(session.list_tools(params=types.PaginatedRequestParams(cursor=cursor)))
                every = [self._definition(each.name, each.description, each.input_schema) for each in page.tools]
                found |= {each.name: each for each in every if len(each.content) < MAX_BYTES}
                if not (cursor := page.next_cursor) or len(found) > MAX_TOOLS:
                    break
            has = session.server_capabilities or types.ServerCapabilities()
            offered = {"read_resource": has.resources, "get_prompt": has.prompts}
            self._extras = {name: _EXTRAS[name] for name, part in offered.items() if part and name not in found}
            for name, each in self._extras.items():
                found[name] = self._definition(name, each.__doc__, each.model_json_schema())
        self.tools, self._listed = dict(list(found.items())[:MAX_TOOLS]), monotonic()
        return True

    async def call(
        self, name: str, arguments: JsonObject, answer: Answer = decline, report: Report = ignore, rest: str = ""
    ) -> McpResult:
        """Call the tool, or the `rest` of the call; cancelling tells the server.

        Its questions go to `answer`, and its progress to `report`.
        """
        if extra := self._extras.get(name):
            try:
                wanted = extra.model_validate(arguments)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"]))
                raise NetError("invalid_arguments", f"{where}: {first['msg']}.") from error
            async with self._session(None) as session:
                return await self._translated(_read(session, wanted))
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=dict(arguments)))
        reported = -PROGRESS_SECONDS

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            nonlocal reported
            if monotonic() - reported >= PROGRESS_SECONDS:
                reported = monotonic()
                told = f"{progress:g}{'' if total is None else f' of {total:g}'} {message or ''}"
                report(one_line(told, MAX_PROGRESS))

        self._answers.append(answer)
        try:
            async with self._session(None) as session:
                for _ in range(MAX_ROUNDS):
                    if rest:
                        waiting = types.InputRequiredResult.model_validate_json(rest)
                        asked = (waiting.input_requests or {}).items()
                        request.params.input_responses = {
                            key: await _responded(each, answer, rest) for key, each in asked
                        }
                        request.params.request_state = waiting.request_state
                    # Not `session.call_tool`, which compiles a schema of the server's to check the server's own answer.
                    result = await self._translated(
                        session.send_request(request, _CALLED, progress_callback=progressed)
                    )
                    if isinstance(result, types.CallToolResult):
                        return _result(result.content, result.structured_content, failed=result.is_error)
                    rest = result.model_dump_json()
            raise NetError("too_many_questions", f"{self.endpoint.host} asks again and again; the call was ended.")
        finally:
            self._answers.remove(answer)

    async def close(self) -> None:
        """End the session and tell the server, waiting 2 s at most."""
        self._ended.set()
        self._used.set()
        await asyncio.wait([self._task], timeout=2.0)
        await cancel(self._task)

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

    async def _hold_open(self) -> None:
        about = types.Implementation(name="supaclaw", version=version("supaclaw"))
        kind = _ProgramSession if self.endpoint.launch else ClientSession
        async with (
            self._streams_opened() as streams,
            kind(*streams, client_info=about, elicitation_callback=self._asked) as session,
        ):
            await (session.initialize() if self.handshake else negotiate_auto(session))
            self.handshake = session.initialize_result is not None
            self._ready.set_result(session)
            while not self._ended.is_set():
                self._used.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._used.wait(), IDLE_SECONDS)
                    continue
                if not self._busy:
                    return

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._ended.set()
        if not task.cancelled() and (error := task.exception()):
            self._failure = _reason(error, self.endpoint.host)
        if not self._ready.done():
            self._ready.set_exception(self._failure or NetError("closed", "The connection was closed."))
            self._ready.exception()  # nobody may be waiting for it

    async def _asked(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:  # noqa: ARG002
        """A question in the middle of a call, as older servers ask; of the newest call, as they don't say of which."""
        answer = self._answers[-1] if self._answers else decline
        return await _responded(types.ElicitRequest(params=params), answer)

    @asynccontextmanager
    async def _streams_opened(self) -> AsyncIterator[TransportStreams]:
        if launch := self.endpoint.launch:
            async with process_streams(self.endpoint.name, launch, MAX_ANSWER) as streams:
                yield streams
            return
        http, url = client.guarded(self.rules, Limits(MAX_ANSWER, None), self.endpoint.headers), self.endpoint.url
        http.event_hooks, http.max_redirects = {"request": [self._count], "response": [self._check]}, 5
        if sign_in := self.endpoint.sign_in:
            http.auth = Renewal(self.endpoint, sign_in)
        if self.endpoint.old_transport:
            async with sse_client(url, httpx_client_factory=lambda headers=None, timeout=None, auth=None: http) as pair:  # noqa: ARG005
                yield pair
            return
        async with http, streamable_http_client(url, http_client=http, max_sse_event_size=MAX_ANSWER) as streams:
            yield streams

    async def _count(self, request: Request) -> None:
        """Limit the streams: the SDK opens one again as often and as soon as the server likes."""
        self._streams += request.method == "GET"
        if self._streams > MAX_STREAMS:
            raise NetError("too_many_streams", f"{self.endpoint.host} ends its streams too often.")

    async def _check(self, response: Response) -> None:
        """Raise for a status that a retry won't change: the SDK treats them all alike."""
        status, probe, self._probed = response.status_code, not self._probed, True
        if response.request.method != "POST" or (status == 401 and self.endpoint.sign_in):
            return  # `Renewal` tries a new token
        if status in (404, 405) and not probe and not self._ready.done():  # an older server doesn't know the probe
            message = (
                f"{self.endpoint.host} takes no requests at this address (status {status}): give the one of its "
                'streamable HTTP, often /mcp; one that speaks only the old HTTP+SSE transport needs "type": "sse".'
            )
            raise NetError("old_transport", message)
        if status in (401, 403, 429) or status >= 500:
            hint = f"; check the headers of tools.mcp.{self.endpoint.name}" if status in (401, 403) else ""
            raise status_error(self.endpoint.host, status, hint)

    async def _translated(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except (MCPError, ClosedResourceError, BrokenResourceError) as error:
            if self._ended.is_set() or not isinstance(error, MCPError) or error.code == types.CONNECTION_CLOSED:
                await asyncio.wait([self._task], timeout=1.0)
                self._ended.set()
                raise self._failure or NetError("dropped", f"{self.endpoint.host} closed the connection.") from error
            raise NetError("server_error", _refusal_text(self.endpoint.host, error), foreign=True) from error
        except (ValueError, RuntimeError) as error:
            self._ended.set()
            raise NetError("bad_answer", f"{self.endpoint.host} did not answer as an MCP server does.") from error

    def _definition(self, name: str, description: str | None, schema: JsonObject) -> ToolDefinition:
        return ToolDefinition(self.endpoint.name, public_url(self.endpoint.url), name, description or "", schema)


async def _responded(request: types.InputRequest, answer: Answer, rest: str = "") -> types.ElicitResult:
    """The response to one request of a server for input; raises `NetError` for anything but a question."""
    match request:
        case types.ElicitRequest(params=types.ElicitRequestURLParams() as asked):
            question = ServerQuestion(asked.message, {}, asked.url, rest)
        case types.ElicitRequest(params=types.ElicitRequestFormParams() as asked):
            question = ServerQuestion(asked.message, asked.requested_schema, rest=rest)
        case _:
            raise NetError("unsupported", "The server wants to use a model or folders of the gateway; none are given.")
    if (values := await answer(question)) is None:
        return types.ElicitResult(action="decline")
    return types.ElicitResult.model_validate({"action": "accept", "content": None if question.url else values})


async def _read(session: ClientSession, wanted: _Resource | _Prompt) -> McpResult:
    """Call one of our own tools."""
    match wanted:
        case _Resource(uri=""):
            pages: list[BaseModel] = [await session.list_resources()]
            with suppress(MCPError):  # a server need not have templates
                pages.append(await session.list_resource_templates())
        case _Resource(uri=uri):
            read = await session.read_resource(uri)
            return _result([types.EmbeddedResource(resource=each) for each in read.contents])
        case _Prompt(name=""):
            pages = [await session.list_prompts()]
        case _Prompt(name=name, arguments=arguments):
            got = await session.get_prompt(name, arguments)
            return replace(_result([each.content for each in got.messages]), prompt=True)
    listed = [page.model_dump(mode="json", by_alias=True, exclude_none=True, include=_LISTS) for page in pages]
    return McpResult("", structured=listed)


def _refusal_text(host: str, error: MCPError) -> str:
    """The message, with the data beside it, such as the address at which a person has to sign in."""
    more = "" if error.data is None else json.dumps(error.data, ensure_ascii=False, default=str)
    return f"{host} refused: {one_line(error.message, 300)} {one_line(more, 1_000)}".rstrip()


def _reason(error: BaseException, host: str) -> NetError:
    match error:
        case BaseExceptionGroup():
            return _reason(error.exceptions[0], host)
        case NetError():
            return error
        case HTTPError():
            return client.translate_error(host, error)
        case MCPError():
            return NetError("server_error", _refusal_text(host, error), foreign=True)
    return NetError("bad_answer", f"{host} did not answer as an MCP server does ({type(error).__name__}).")


def _result(blocks: Sequence[types.ContentBlock], data: JsonObject | None = None, *, failed: bool = False) -> McpResult:
    texts, blobs = list[str](), list[Blob]()
    for block in blocks:
        match block.resource if isinstance(block, types.EmbeddedResource) else block:
            case types.TextContent(text=text) | types.TextResourceContents(text=text):
                texts.append(text)
            case types.ResourceLink(uri=uri, name=name):
                texts.append(f"[{name}]({uri})")
            case types.BlobResourceContents(blob=body, mime_type=mime):
                blobs += _blob(body, mime)
            case types.ImageContent(data=body, mime_type=mime) | types.AudioContent(data=body, mime_type=mime):
                blobs += _blob(body, mime)
    shown = None if data is None or _repeats(texts, data) else data
    return McpResult("\n".join(texts), tuple(blobs), shown, failed)


def _repeats(texts: Sequence[str], structured: JsonObject) -> bool:
    """Whether the texts say the same: as JSON in one, as an item each, or as the one field that SDKs wrap them in."""
    items = list(map(json_or_text, texts))
    forms = [items, list(texts), *items[:1], *texts[:1]] if len(texts) == 1 else [items, list(texts)]
    return structured in forms or (len(structured) == 1 and next(iter(structured.values())) in forms)


def _blob(data: str, mime: str | None) -> list[Blob]:
    with suppress(binascii.Error, ValueError):
        return [Blob(mime or "", base64.b64decode(data))]
    return []
