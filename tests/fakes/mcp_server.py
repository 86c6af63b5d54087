"""A real MCP server on a real socket, with the official package: its tools and what they answer can change."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

Handler = Callable[[dict[str, Any]], Awaitable[types.CallToolResult | types.InputRequiredResult]]
CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "A city"}}, "required": ["city"]}


def text(words: str, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=words)], **more)


def asking(message: str, fields: dict[str, Any] | None = None, url: str = "") -> types.InputRequiredResult:
    """A question to the person."""
    params: Any = types.ElicitRequestURLParams(message=message, url=url)
    if not url:
        schema = {"type": "object", "properties": fields or {}, "required": list(fields or {})}
        params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    request = types.ElicitRequest(params=params)
    return types.InputRequiredResult(input_requests={"q": request}, request_state="where it was")


async def echo(arguments: dict[str, Any]) -> types.CallToolResult:
    return text(f"echo {arguments}")


@dataclass
class FakeMcp:
    """`token`: what it wants as a bearer. `hold` keeps each call until it is set."""

    token: str = ""
    resource: dict[str, Any] | None = None
    """Its metadata, which names the issuer of its tokens; None: it has none."""
    tools: dict[str, types.Tool] = field(default_factory=dict)
    handlers: dict[str, Handler] = field(default_factory=dict)
    called: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    responses: list[Any] = field(default_factory=list)
    """The answers to its questions, in the order of the calls."""
    headers: list[dict[str, str]] = field(default_factory=list)
    listed: int = 0
    resources: dict[str, str] = field(default_factory=dict)
    """Texts by their addresses; with any, it has prompts of these texts, too."""
    progress: list[tuple[float, float, str]] = field(default_factory=list)
    """The progress that each call reports: done, total, message."""
    port: int = 0
    cancelled: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, name: str, description: str, schema: dict[str, Any] = CITY, handler: Handler = echo) -> None:
        # The annotations say that it is harmless; nobody should believe them.
        harmless = types.ToolAnnotations(read_only_hint=True, destructive_hint=False)
        self.tools[name] = types.Tool(name=name, description=description, input_schema=schema, annotations=harmless)
        self.handlers[name] = handler

    async def _list(self, _context: object, _params: object) -> types.ListToolsResult:
        self.listed += 1
        return types.ListToolsResult(tools=list(self.tools.values()))

    async def _call(
        self, context: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        arguments = dict(params.arguments or {})
        self.called.append((params.name, arguments))
        self.responses.append(params.input_responses)
        try:
            for done, total, message in self.progress:
                await context.session.report_progress(done, total, message)
            return await self.handlers[params.name](arguments)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _resources(self, _context: object, _params: object) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri=uri, name=uri) for uri in self.resources])

    async def _read(self, _context: object, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        contents = types.TextResourceContents(uri=params.uri, text=self.resources[params.uri])
        return types.ReadResourceResult(contents=[contents])

    async def _prompts(self, _context: object, _params: object) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name=name) for name in self.resources])

    async def _prompt(self, _context: object, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        words = types.TextContent(text=f"{self.resources[params.name]} {params.arguments}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=words)])

    def _manager(self) -> StreamableHTTPSessionManager:
        more: dict[str, Any] = {}
        if self.resources:
            more = {"on_list_resources": self._resources, "on_read_resource": self._read}
            more |= {"on_list_prompts": self._prompts, "on_get_prompt": self._prompt}
        server: Server[Any] = Server("fake", version="1", on_list_tools=self._list, on_call_tool=self._call, **more)
        return StreamableHTTPSessionManager(server)

    @contextlib.contextmanager
    def in_a_thread(self) -> Iterator[None]:
        """For what has an event loop of its own."""
        ready, over = threading.Event(), threading.Event()

        async def serve() -> None:
            async with self.running():
                ready.set()
                await asyncio.to_thread(over.wait)

        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        assert ready.wait(30)
        yield
        over.set()
        thread.join()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FakeMcp"]:
        """Serve; a second time on the same port, as after a restart."""
        manager = self._manager()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            headers = {key.decode(): value.decode() for key, value in scope["headers"]}
            self.headers.append(headers)
            if scope["path"].startswith("/.well-known/"):
                found = self.resource and scope["path"] == "/.well-known/oauth-protected-resource/mcp"
                await JSONResponse(self.resource if found else {}, 200 if found else 404)(scope, receive, send)
                return
            if self.token and headers.get("authorization") != f"Bearer {self.token}":
                await JSONResponse({"error": "unauthorized"}, 401)(scope, receive, send)
                return
            await manager.handle_request(scope, receive, send)

        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)

        async def serve() -> None:  # in a task of its own: what opens the manager has to close it
            async with manager.run():
                await server._serve([listening])

        task = asyncio.create_task(serve())
        try:
            yield self
        finally:
            server.should_exit = server.force_exit = True
            await task
            listening.close()
