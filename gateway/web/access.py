"""Who is asking: a bearer token or a browser session, and what it may do."""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request

from gateway.domain.inbound import Sender
from gateway.domain.scopes import Scope, permits
from gateway.store.people import tokens
from gateway.store.people.tokens import TokenRow
from gateway.web.backend import Backend
from gateway.web.errors import Refused
from gateway.web.site import site_of

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """Someone whose credential was good. `account` names the credential: what it sends is kept apart by it."""

    account: str
    scopes: frozenset[Scope]
    session: TokenRow | None = None

    @property
    def source(self) -> str | None:
        """The only source it may trigger for; None: any."""
        return self.session.source if self.session else None


def needs(*scopes: Scope) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency that lets in who carries a bearer token with one of these scopes; raises `Refused`."""

    async def admitted(request: Request) -> Caller:
        caller = await _unless_guessing(request, _bearer(request), by_bearer)
        if caller is None:
            message = "No valid token was sent (Authorization: Bearer claw_…)."
            raise Refused(401, "invalid_api_key", message, headers={"WWW-Authenticate": "Bearer"})
        if not any(permits(caller.scopes, scope) for scope in scopes):
            message = f"This token lacks the scope {' or '.join(scopes)}."
            raise Refused(403, "missing_scope", message, type="permission_error")
        return caller

    return admitted


async def signed_in(request: Request) -> Caller:
    """A dependency that lets in a browser session; raises `Refused`."""
    caller = await _unless_guessing(request, request.cookies.get(cookie_name(request)), by_cookie)
    if caller is None:
        raise Refused(401, "signed_out", "Sign in again: `supaclaw web` prints a link.")
    return caller


async def by_bearer(request: Request) -> Caller | None:
    """Whoever the Authorization header names; None when it is absent or wrong."""
    plain = _bearer(request)
    if plain is None:
        return None
    backend = site_of(request).backend
    if hmac.compare_digest(tokens.sha256(plain), tokens.sha256(backend.local_token)):
        return Caller(LOCAL, frozenset({Scope.ADMIN}))
    return await _stored(backend, plain, "bearer")


async def by_cookie(request: Request) -> Caller | None:
    """Whoever the session cookie names; None when it is absent, wrong or over."""
    plain = request.cookies.get(cookie_name(request))
    return await _stored(site_of(request).backend, plain, "cookie") if plain else None


def cookie_name(request: Request) -> str:
    """The strict name needs https, which a loopback address does not have."""
    return "__Host-claw" if request.url.scheme == "https" else "claw"


def owner_as_sender(backend: Backend) -> Sender:
    """The owner is whoever holds a credential."""
    return Sender("owner", backend.owner.name)


def client_of(request: Request) -> str:
    """Where the connection comes from."""
    return request.client.host if request.client else ""


def _bearer(request: Request) -> str | None:
    kind, _, plain = request.headers.get("authorization", "").partition(" ")
    return plain if kind.lower() == "bearer" and plain else None


async def _stored(backend: Backend, plain: str, kind: str) -> Caller | None:
    row = await tokens.find(backend.database, plain)
    now = backend.clock.now()
    if row is None or row.kind != kind or not row.valid(now):
        return None
    await tokens.touch(backend.database, row, now)
    return Caller(str(row.id), frozenset(row.scopes), row)


async def _unless_guessing(
    request: Request, plain: str | None, identify: Callable[[Request], Awaitable[Caller | None]]
) -> Caller | None:
    """Identify, but do not even look at a credential of a client that failed too often; none at all is no failure."""
    if plain is None:
        return None
    site_of(request).throttle.admit(client_of(request))
    caller = await identify(request)
    if caller is None:
        site_of(request).throttle.failed(client_of(request))
    return caller
