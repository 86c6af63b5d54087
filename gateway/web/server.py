"""Builds the web app with its routes, middleware and OpenAPI document, and runs it on the gateway's event loop.

Stopping it closes open streams.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields
from http import HTTPStatus
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from gateway.web import api, screens
from gateway.web.auth import sign_in
from gateway.web.auth.access import Scheme
from gateway.web.auth.request_guard import Entry, RequestGuard, entries
from gateway.web.backend import Backend
from gateway.web.http.errors import handle_errors
from gateway.web.http.headers import ProxyHeaders, SecurityHeaders
from gateway.web.http.limits import Connection, Connections, RateLimiter, Throttle
from gateway.web.live.conversations import Conversations
from gateway.web.live.topics import Thread, Topics
from gateway.web.markup.markdown import Markdown
from gateway.web.pages import STATIC, Pages, Screen
from gateway.web.site import Rights, Site
from gateway.web.v1 import routes

GRACE_SECONDS = 5


async def serve(backend: Backend, listener: socket.socket) -> None:
    """Serve on this socket until cancelled; then end the streams, finish open requests, and close the socket."""
    with listener:
        app = await asyncio.to_thread(build_app, backend)
        config = uvicorn.Config(
            app,
            http=Connection,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws="none",
            lifespan="on",
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        server = _Server(config)
        running = asyncio.create_task(server.serve([listener]), name="uvicorn")
        try:
            await asyncio.shield(running)
        finally:
            app.state.site.stopping.set()
            server.request_stop()
            await running


class _Server(uvicorn.Server):
    """uvicorn without its tick, which polls ten times a second whether to stop and wakes an idle gateway."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._left = asyncio.Event()

    def request_stop(self) -> None:
        self.should_exit = True
        self._left.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._left.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Do nothing: the gateway handles signals."""
        yield


TRIGGERS_PER_MINUTE = 60
"""Requests per minute and credential; also the largest burst."""

_SENT_AS_IT_IS = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")


def build_app(backend: Backend) -> FastAPI:
    """Build the web app of one gateway."""
    shown = screens.discover()
    site = _site(backend, shown)
    app = DocumentedApp(
        title="SupaClaw", openapi_url="/api/openapi.json", docs_url=None, redoc_url=None, lifespan=_lifespan
    )
    app.state.site = site
    handle_errors(app)
    pages = (*shown, sign_in.router)
    programs = (*api.discover(), routes.router)
    for router in pages:
        app.include_router(router, include_in_schema=False)
    for router in programs:
        app.include_router(router)
    app.entries = entries(*pages, *programs)
    app.mount("/static", _Files(directory=STATIC), name="static")
    app.add_middleware(GZipMiddleware, minimum_size=1000, exclude_content_types=_SENT_AS_IT_IS)
    app.add_middleware(RequestGuard, routes=app.entries)
    app.add_middleware(SecurityHeaders)
    if public_url := backend.access.public_url:
        app.add_middleware(ProxyHeaders, public_url=public_url, proxies=backend.access.proxies)
    return app


def _site(backend: Backend, nav: tuple[Screen, ...]) -> Site:
    conversations = Conversations(backend.database, backend.chat.live)
    pages, markdown = Pages(), Markdown()
    backend.signals.memory_low.subscribe_call(markdown.forget)
    greeting = pages.piece("empty.html", owner=backend.owner.name)
    topics = Topics(conversations, lambda: Thread(pages, markdown, greeting, backend.chat.wordings, acts=True))
    rights = Rights(backend.database, backend.clock)
    backend.signals.access_changed.subscribe_call(rights.look_again)
    site = Site(
        **{part.name: getattr(backend, part.name) for part in fields(Backend)},
        conversations=conversations,
        topics=topics,
        pages=pages,
        throttle=Throttle(backend.clock),
        rate_limiter=RateLimiter(backend.clock, TRIGGERS_PER_MINUTE, TRIGGERS_PER_MINUTE / 60),
        nav=nav,
        rights=rights,
    )
    backend.signals.access_changed.subscribe_call(site.boards.wake)
    return site


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[dict[str, Connections]]:
    site: Site = app.state.site
    async with asyncio.TaskGroup() as group:
        group.create_task(site.topics.serve(site.stopping), name="topics")
        group.create_task(site.rights.serve(site.stopping), name="rights")
        yield {"connections": Connections(site.access.proxies if site.access.public_url else None)}
        site.stopping.set()


class _Files(StaticFiles):
    """Static files whose URL changes with their content, so that browsers may cache them permanently."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if response.status_code == 200:
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


_TEXT = {"type": ["string", "null"]}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}, "param": _TEXT, "code": _TEXT},
        }
    },
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "claw_…"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "claw", "description": "`__Host-claw` behind https"},
}


class DocumentedApp(FastAPI):
    """An app that adds `entries` to its OpenAPI document at the document's first use."""

    entries: tuple[Entry, ...] = ()

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            schema = super().openapi()
            components = schema.setdefault("components", {})
            used = {name: each for name, each in components.get("schemas", {}).items() if "ValidationError" not in name}
            components |= {"securitySchemes": _SCHEMES, "schemas": {**used, "Error": _ERROR}}
            for entry in self.entries:
                operations = schema["paths"].get(entry.route.path, {})
                for method in operations.keys() & {name.lower() for name in entry.route.methods or ()}:
                    _complete(operations[method], entry)
        return self.openapi_schema or {}


def _complete(operation: dict[str, Any], entry: Entry) -> None:
    scheme = entry.requirement.scheme
    operation["security"] = [{scheme: []}] if scheme in _SCHEMES else []
    responses = operation["responses"]
    responses.pop("422", None)
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status in _errors(entry):
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase})
    for status, response in responses.items():
        if status >= "400":
            response.setdefault("content", content)


_ERRORS: Mapping[Scheme, set[int]] = {
    "public": {403},
    "webhook": {401, 429},
    "bearer": {401, 403, 409, 429},
    "cookie": {401, 403, 409, 429},
}


def _errors(entry: Entry) -> set[int]:
    """The error codes of the guard and the error handlers; a route declares its own `responses`."""
    found = {400, 408, 413, 421, 500, 503} | _ERRORS[entry.requirement.scheme]
    return found | ({404} if "{" in entry.route.path else set())
