"""Authentication: what each route requires, bearer tokens and browser sessions, and their scopes."""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from fastapi import Depends, Request

from gateway.domain.conversation.inbound import LOCAL, MEMBER, Sender
from gateway.domain.ids import PrincipalId
from gateway.domain.memory.memories import ALL_MEMORIES, MemoryAccess
from gateway.domain.people.credentials import Scope, permits
from gateway.domain.principals import Principal
from gateway.store.people import principals, tokens
from gateway.store.people.tokens import LiveToken
from gateway.web.http.errors import Refused
from gateway.web.http.headers import cookie_name, hosts_of, split_host
from gateway.web.site import Site, site_of

ADMITTED = "supaclaw.admitted"
"""The key of the ASGI scope that holds the caller, by the requirement that it met."""

PUBLIC_BODY = 4 * 1024
"""Bytes that a client without a credential may send: enough for the secret of a sign-in link."""
SMALL_BODY = 64 * 1024
"""A form or a JSON object of a few fields."""
MESSAGE_BODY = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated client. `account` names its credential, which separates its conversations from others'."""

    account: str
    scopes: frozenset[str]
    session: LiveToken | None = None
    member: Principal | None = None
    """The member whose credential it is; None for the owner's."""

    @property
    def source(self) -> str | None:
        """The only source that it may send triggers for; None for any."""
        return self.session.source if self.session else None

    @property
    def reach(self) -> MemoryAccess:
        """The memory that it may see and change: the owner's page and terminal all, a token its agent's rows."""
        if self.session is None or self.session.kind == "cookie":
            return ALL_MEMORIES
        shared = self.session.shared or Scope.ADMIN in self.scopes
        return MemoryAccess(self.session.agent or f"token {self.session.id}", shared=shared)

    @property
    def as_owner(self) -> bool:
        """Whether it speaks as the owner: the page, the local token, and tokens created for that."""
        return self.session is None or self.session.as_owner


Scheme: TypeAlias = Literal["public", "bearer", "cookie", "webhook"]


@dataclass(frozen=True, slots=True, eq=False)
class Requirement:
    """The credential that a route requires before the body is read, and the most bytes of the body.

    Declared as a dependency of the route. `RequestGuard` calls `identify`, which raises `Refused`; the dependency
    itself only passes on the result, and fails if the guard has not checked this very requirement.
    """

    identify: Callable[[Request], Awaitable[Caller | None]]
    scheme: Scheme
    body: int

    async def __call__(self, request: Request) -> Caller | None:
        """The caller; None if the route is public."""
        admitted: dict[Requirement, Caller | None] = request.scope[ADMITTED]
        return admitted[self]


async def _no_caller(_request: Request) -> None:
    return None


async def _browser(request: Request) -> Caller:
    if caller := await by_cookie(request):
        return caller
    refused = Refused(401, "signed_out", "Sign in again: `supaclaw web` prints a link.")
    raise _count_failure(request, _cookie(request), refused)


async def _visitor(request: Request) -> Caller:
    if caller := await by_cookie(request):
        return caller
    raise Refused(303, "signed_out", "Sign in first.", headers={"Location": "/login"})


public = Requirement(_no_caller, "public", PUBLIC_BODY)
"""For a route that needs no credential."""

for_programs = Requirement(_no_caller, "webhook", PUBLIC_BODY)
"""The same, for requests of programs, which don't look like those of a page and count for nobody."""

signed_in = Requirement(_browser, "cookie", MESSAGE_BODY)
"""For a route that requires a browser session."""

OWNER = [Depends(signed_in)]
SignedIn = Annotated[Caller, Depends(signed_in)]
VISITOR = [Depends(Requirement(_visitor, "cookie", PUBLIC_BODY))]
"""For a page; without a session it redirects to the sign-in page."""


def needs(*scopes: Scope, body: int = SMALL_BODY, members: bool = False) -> Requirement:
    """A requirement of a bearer token with one of these scopes; a member's token only if `members`."""

    async def identify(request: Request) -> Caller:
        caller = await by_bearer(request)
        if caller is None:
            message = "No valid token was sent (Authorization: Bearer claw_…)."
            refused = Refused(401, "invalid_api_key", message, headers={"WWW-Authenticate": "Bearer"})
            raise _count_failure(request, _bearer(request), refused)
        if not any(permits(caller.scopes, scope) for scope in scopes):
            raise Refused(403, "missing_scope", f"This token lacks the scope {' or '.join(scopes)}.")
        if caller.member is not None and not members:
            raise Refused(403, "owner_only", "This needs a token of the owner.")
        return caller

    return Requirement(identify, "bearer", body)


def refuse_source(caller: Caller) -> None:
    """Raise `Refused` for the token of one source of webhooks."""
    if caller.source is not None:
        raise Refused(403, "wrong_source", f"This token only triggers for {caller.source}: POST /trigger.")


async def by_bearer(request: Request) -> Caller | None:
    """The caller named by the Authorization header; None if it is absent or invalid."""
    plain = _bearer(request)
    if plain is None:
        return None
    site = site_of(request)
    if hmac.compare_digest(tokens.sha256(plain), tokens.sha256(site.access.local_token)):
        return Caller(LOCAL, frozenset({Scope.ADMIN}))
    return await _by_token(site, plain, "bearer")


async def by_cookie(request: Request) -> Caller | None:
    """The caller named by the session cookie; None if it is absent, invalid or expired, or this is not `at_page`."""
    plain = _cookie(request)
    caller = await _by_token(site_of(request), plain, "cookie") if plain else None
    return None if caller is None or caller.member is not None else caller  # the page is the owner's


def at_page(request: Request) -> bool:
    """Whether this is the page's own host; at 127.0.0.1 the browser would give its cookie to every local program."""
    access, host = site_of(request).access, request.headers.get("host", "").lower()
    return split_host(host)[0] == access.page_name or host in hosts_of(access.public_url)


def sender_of(site: Site, caller: Caller) -> Sender:
    """The sender of a message: the owner, or the member whose token it is."""
    return site.owner_as_sender if caller.member is None else Sender(f"{MEMBER}{caller.member.id}", caller.member.name)


def principal_of(site: Site, caller: Caller) -> PrincipalId:
    """The principal whose data a request may use."""
    return site.owner.id if caller.member is None else caller.member.id


def client_of(request: Request) -> str:
    """The client's IP address."""
    return request.client.host if request.client else ""


def _bearer(request: Request) -> str | None:
    kind, _, plain = request.headers.get("authorization", "").partition(" ")
    return plain if kind.lower() == "bearer" and plain else None


def _cookie(request: Request) -> str | None:
    return request.cookies.get(cookie_name(request)) if at_page(request) else None


async def _by_token(site: Site, plain: str, kind: str) -> Caller | None:
    row = await site.lookups.find(site.database, plain)
    now = site.clock.now()
    if row is None or row.kind != kind or not row.valid(now):
        return None
    member = None
    if row.principal_id != site.owner.id:
        async with site.database.connection() as conn:
            if not await site.access.lets_in(conn, row.principal_id):
                return None
            member = await principals.get(conn, row.principal_id)
    await tokens.touch(site.database, row, now)
    return Caller(str(row.id), frozenset(row.scopes), row, member)


def _count_failure(request: Request, plain: str | None, refused: Refused) -> Refused:
    """Count a wrong credential as a failure, but not a missing one; returns the error to send."""
    return refused if plain is None else site_of(request).throttle.failed(client_of(request), refused)
