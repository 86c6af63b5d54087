"""Authentication: bearer tokens and browser sessions, and their scopes."""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request

from gateway.domain.errors import TryAgainLater
from gateway.domain.inbound import Sender
from gateway.domain.scopes import Scope, permits
from gateway.store.people import tokens
from gateway.store.people.tokens import LiveToken
from gateway.web.backend import Backend
from gateway.web.errors import Refused
from gateway.web.origin import cookie_name, has_cookie, split_host
from gateway.web.proxy import hosts_of
from gateway.web.site import site_of

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated client. `account` names its credential, which separates its conversations from others'."""

    account: str
    scopes: frozenset[Scope]
    session: LiveToken | None = None

    @property
    def source(self) -> str | None:
        """The only source it may trigger for; None for any."""
        return self.session.source if self.session else None


def needs(*scopes: Scope) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency that requires a bearer token with one of these scopes; raises `Refused`."""

    async def admitted(request: Request) -> Caller:
        caller = await _throttled(request, _bearer(request), by_bearer)
        if caller is None:
            message = "No valid token was sent (Authorization: Bearer claw_…)."
            raise Refused(401, "invalid_api_key", message, headers={"WWW-Authenticate": "Bearer"})
        if not any(permits(caller.scopes, scope) for scope in scopes):
            message = f"This token lacks the scope {' or '.join(scopes)}."
            raise Refused(403, "missing_scope", message, type="permission_error")
        return caller

    return admitted


async def signed_in(request: Request) -> Caller:
    """A dependency that requires a browser session; raises `Refused`."""
    caller = await _throttled(request, _cookie(request), by_cookie)
    if caller is None:
        raise Refused(401, "signed_out", "Sign in again: `supaclaw web` prints a link.")
    return caller


async def by_bearer(request: Request) -> Caller | None:
    """The caller named by the Authorization header; None if it is absent or invalid."""
    plain = _bearer(request)
    if plain is None:
        return None
    backend = site_of(request).backend
    if hmac.compare_digest(tokens.sha256(plain), tokens.sha256(backend.local_token)):
        return Caller(LOCAL, frozenset({Scope.ADMIN}))
    return await _by_token(backend, plain, "bearer")


async def by_cookie(request: Request) -> Caller | None:
    """The caller named by the session cookie; None if it is absent, invalid or expired, or this is not `at_page`."""
    plain = _cookie(request)
    return await _by_token(site_of(request).backend, plain, "cookie") if plain else None


def at_page(request: Request) -> bool:
    """Whether this is the page's own host; at 127.0.0.1 the browser would give its cookie to every local program."""
    backend, host = site_of(request).backend, request.headers.get("host", "").lower()
    return split_host(host)[0] == backend.page_name or host in hosts_of(backend.public_url)


async def bearer_alone(request: Request) -> bool:
    """Whether it stands on a valid token, which no foreign page has, and not on a cookie, which the browser adds."""
    try:
        return not has_cookie(request) and await _throttled(request, _bearer(request), by_bearer) is not None
    except (Refused, TryAgainLater):
        return False


def owner_as_sender(backend: Backend) -> Sender:
    """The sender of web messages: whoever holds a credential acts as the owner."""
    return Sender("owner", backend.owner.name)


def client_of(request: Request) -> str:
    """The client's IP address."""
    return request.client.host if request.client else ""


def _bearer(request: Request) -> str | None:
    kind, _, plain = request.headers.get("authorization", "").partition(" ")
    return plain if kind.lower() == "bearer" and plain else None


def _cookie(request: Request) -> str | None:
    return request.cookies.get(cookie_name(request)) if at_page(request) else None


async def _by_token(backend: Backend, plain: str, kind: str) -> Caller | None:
    row = await tokens.find(backend.database, plain)
    now = backend.clock.now()
    if row is None or row.kind != kind or not row.valid(now):
        return None
    await tokens.touch(backend.database, row, now)
    return Caller(str(row.id), frozenset(row.scopes), row)


async def _throttled(
    request: Request, plain: str | None, identify: Callable[[Request], Awaitable[Caller | None]]
) -> Caller | None:
    """Identify the caller; a client that failed too often is refused first. A missing credential is not a failure."""
    if plain is None:
        return None
    site_of(request).throttle.admit(client_of(request))
    caller = await identify(request)
    if caller is None:
        site_of(request).throttle.failed(client_of(request))
    return caller
