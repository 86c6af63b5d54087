"""Builds the app: all routes and middleware."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from gateway.web import api, mcp, screens
from gateway.web.auth import login, secret_form
from gateway.web.auth.security import RequestGuard, entries
from gateway.web.backend import Backend
from gateway.web.http.connections import Connections
from gateway.web.http.errors import handle_errors
from gateway.web.http.headers import SecurityHeaders
from gateway.web.http.proxy import ProxyHeaders, hosts_of
from gateway.web.http.throttle import RateLimiter, Throttle
from gateway.web.live.follow import Conversations
from gateway.web.live.thread import Thread
from gateway.web.live.topics import Topics
from gateway.web.openapi import DocumentedApp
from gateway.web.pages import STATIC, Nav, Pages
from gateway.web.render import Markdown
from gateway.web.rights import Rights
from gateway.web.site import Site
from gateway.web.v1 import embeddings
from gateway.web.v1 import routes as v1

TRIGGERS = 60
"""Requests per minute and credential, also as a burst."""

_SENT_AS_IT_IS = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")


def build_app(backend: Backend) -> FastAPI:
    """Build the web app of one gateway."""
    shown = screens.discover()
    site = _site(backend, tuple(screen.nav for screen in shown))
    app = DocumentedApp(
        title="SupaClaw", openapi_url="/api/openapi.json", docs_url=None, redoc_url=None, lifespan=_lifespan
    )
    app.state.site = site
    handle_errors(app)
    pages, programs = (
        (*(screen.router for screen in shown), login.router, secret_form.router),
        (*api.discover(), v1.router, embeddings.router, mcp.router),
    )
    for router in pages:
        app.include_router(router, include_in_schema=False)
    for router in programs:
        app.include_router(router)
    app.entries = entries(*pages, *programs)
    app.mount("/static", _Files(directory=STATIC), name="static")
    app.add_middleware(GZipMiddleware, minimum_size=1000, exclude_content_types=_SENT_AS_IT_IS)
    app.add_middleware(
        RequestGuard,
        allowed_hosts=hosts_of(backend.public_url),
        named_hosts=backend.allowed_hosts,
        page_name=backend.page_name,
        routes=app.entries,
    )
    app.add_middleware(SecurityHeaders)
    if backend.public_url:
        app.add_middleware(ProxyHeaders, public_url=backend.public_url)
    return app


def _site(backend: Backend, nav: tuple[Nav, ...]) -> Site:
    conversations = Conversations(backend.database, backend.live)
    pages, markdown = Pages(), Markdown()
    backend.on_shed(markdown.forget)
    greeting = pages.piece("empty.html", owner=backend.owner.name)
    topics = Topics(conversations, lambda: Thread(pages, markdown, greeting, backend.wordings, acts=True))
    throttle, rate_limiter = Throttle(backend.clock), RateLimiter(backend.clock, TRIGGERS, TRIGGERS / 60)
    rights = Rights(backend.database, backend.clock)
    backend.on_people_changed(rights.look_again)
    return Site(backend, conversations, topics, pages, throttle, rate_limiter, nav, rights)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[dict[str, Connections]]:
    site: Site = app.state.site
    async with asyncio.TaskGroup() as group:
        group.create_task(site.topics.serve(site.stopping), name="topics")
        group.create_task(site.rights.serve(site.stopping), name="rights")
        yield {"connections": Connections(proxied=site.backend.public_url is not None)}
        site.stopping.set()


class _Files(StaticFiles):
    """Static files whose URL changes with their content, so that browsers may cache them for ever."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if response.status_code == 200:
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
