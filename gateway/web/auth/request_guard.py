"""Checks on every request before a byte of its body is read: host, origin, credential and size."""

import asyncio
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.config.value_types import LOOPBACK_HOSTS
from gateway.domain.errors import TryAgainLater
from gateway.domain.text.texts import one_line
from gateway.web.auth.access import ADMITTED, Caller, Requirement, at_page, client_of, public
from gateway.web.http.errors import Refused, respond
from gateway.web.http.headers import has_cookie, is_foreign, split_host
from gateway.web.site import site_of

BODY_SECONDS = 10.0
UNKNOWN_HOST = (
    "This gateway does not answer to that host name ({host}). Set web.public_url in config.json to the address by "
    "which browsers reach it, such as https://claw.example.org; for programs, add the name to web.allowed_hosts."
)
"""The longest pause within a body; on a public route, the longest time for the whole body."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A route and its requirement."""

    route: APIRoute
    requirement: Requirement


def entries(*routers: APIRouter) -> tuple[Entry, ...]:
    """All routes; raises `TypeError` for one that does not declare exactly one requirement."""
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return tuple(Entry(route, _requirement(route)) for route in routes)


def _requirement(route: APIRoute) -> Requirement:
    found = set(_requirements(route.dependant))
    if len(found) != 1:
        raise TypeError(f"{route.path} must depend on one of needs(…), signed_in and public")
    return found.pop()


def _requirements(dependant: Dependant) -> list[Requirement]:
    own = [dependant.call] if isinstance(dependant.call, Requirement) else []
    return own + [found for inner in dependant.dependencies for found in _requirements(inner)]


@dataclass(frozen=True, slots=True)
class RequestGuard:
    """Refuses requests for other hosts (DNS rebinding), from other origins (CSRF), without the route's credential, and
    oversized or stalled ones (flooding). A path without a route counts as public.
    """

    app: ASGIApp
    routes: tuple[Entry, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or refuse it; websockets are not supported."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            requirement, place = self._find(scope)
            request = Request({**scope, **place})
            try:
                caller = await self._admit(request, requirement)
            except (Refused, TryAgainLater) as error:
                await (await _response(request, error))(scope, receive, send)
            else:
                await self.app({**scope, ADMITTED: {requirement: caller}}, _limited(receive, requirement), send)

    def _find(self, scope: Scope) -> tuple[Requirement, Scope]:
        for entry in self.routes:
            match, place = entry.route.matches(scope)
            if match is Match.FULL:
                return entry.requirement, place
        return public, {}

    async def _admit(self, request: Request, requirement: Requirement) -> Caller | None:
        headers = request.headers
        if "content-length" in headers and "transfer-encoding" in headers:
            message = "Send either Content-Length or Transfer-Encoding, not both."
            raise Refused(400, "ambiguous_length", message, headers={"Connection": "close"})
        if len(headers.getlist("host")) != 1 or not _serves_host(request):
            named = one_line(headers.get("host", ""), 100).lower() or "no name"
            raise Refused(421, "unknown_host", UNKNOWN_HOST.format(host=named))
        by_token = requirement.scheme == "bearer" and not has_cookie(request)  # no foreign page has one
        if not by_token and requirement.scheme != "webhook" and is_foreign(request):
            raise Refused(403, "foreign_origin", "Requests from other web pages are refused.")
        connection = request.state.connection
        connection.of_client(client_of(request))
        caller = await requirement.identify(request)
        if caller is not None and not connection.of_caller(caller.account):
            raise Refused(429, "too_many_connections", "This credential has too many requests open; end some first.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > requirement.body:
            raise _too_large(requirement.body)
        return caller


def _serves_host(request: Request) -> bool:
    name, port = split_host(request.headers["host"].lower())
    if port and not port.isdecimal():
        return False
    return name in LOOPBACK_HOSTS or at_page(request) or name in site_of(request).access.allowed_hosts()


async def _response(request: Request, error: Refused | TryAgainLater) -> Response:
    """The error; a person's browser gets a host name that isn't set as plain text: it is the first thing they meet."""
    accepted = request.headers.get("accept", "")
    if isinstance(error, Refused) and error.code == "unknown_host" and "text/html" in accepted:
        return PlainTextResponse(error.detail, error.status_code)
    return await respond(request, error)


def _too_large(limit: int) -> Refused:
    size = f"{limit // 1024**2} MB" if limit >= 1024**2 else f"{limit // 1024} KB"
    return Refused(413, "too_large", f"The request is too large; the limit is {size}.")


def _limited(receive: Receive, requirement: Requirement) -> Receive:
    """Limit the bytes and the pauses of a body: a request need not declare its length."""
    left, whole, clock = requirement.body, False, asyncio.get_running_loop().time
    began = clock()

    async def limited() -> Message:
        nonlocal left, whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at((began if requirement is public else clock()) + BODY_SECONDS):
                message = await receive()
        except TimeoutError:
            raise Refused(408, "too_slow", "The request stopped in the middle; send it again.") from None
        left -= len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if left < 0:
            raise _too_large(requirement.body)
        return message

    return limited
