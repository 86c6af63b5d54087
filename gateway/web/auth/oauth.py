"""The authorization server for clients of `/mcp`, with the handlers of the `mcp` package.

Imports them, so: in a thread.

Registration stores nothing: a client's id is what it says of itself, as anybody may say anything there. What protects
the owner is the consent, which shows where the code goes, so that address is checked whenever an id is read.
"""

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import time
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull as ClientInfo
from mcp.shared.auth import OAuthToken
from pydantic import AnyUrl, field_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.config.value_types import LOOPBACK_HOSTS
from gateway.domain.people.credentials import Scope
from gateway.domain.text.texts import one_line
from gateway.store.people import tokens
from gateway.web.http.headers import hosts_of, split_host
from gateway.web.site import Site

CODE_SECONDS = 60
TOKEN_LIFE = timedelta(hours=1)
"""After it a client renews its token, with a refresh token that works once."""
MAX_REDIRECTS, MAX_CLIENT_NAME = 5, 60
APPS = frozenset({"cursor", "vscode"})
"""Schemes of programs that are called back by their own."""
_SAFE = f"one to {MAX_REDIRECTS} addresses with https, or with http on this machine"
Endpoint: TypeAlias = Literal["authorize", "token", "register", "revoke"]
_KEPT = {"client_id", "client_name", "redirect_uris", "scope", "token_endpoint_auth_method"}


class Client(ClientInfo):
    """A client as it describes itself in its id; it has no secret."""

    @field_validator("redirect_uris")
    @classmethod
    def _check(cls, uris: list[AnyUrl] | None) -> list[AnyUrl]:
        if not uris or len(uris) > MAX_REDIRECTS or not all(map(_is_safe, uris)):
            raise ValueError(_SAFE)
        return uris

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """Exactly one of its addresses; on this machine at any port, as programs take a free one."""
        known = map(_without_port, self.redirect_uris or ())
        if redirect_uri and redirect_uri.scheme == "http" and _without_port(redirect_uri) in known:
            return redirect_uri
        return super().validate_redirect_uri(redirect_uri)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that the owner has to decide on; the name is the client's own words."""

    name: str
    to: str
    """Where the code would go."""
    scopes: Sequence[Scope]


@dataclass
class AuthorizationServer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Answers one request. `granted`: the scopes that the owner chose, None before they did."""

    site: Site
    scopes: Collection[Scope]
    """Those that a client can have."""
    port: str
    """That of the request's address, "" for the usual one."""
    granted: Collection[str] | None = None
    asked: Asked | None = field(default=None, init=False)

    async def answer(self, endpoint: Endpoint, request: Request) -> Response:
        """The response of an endpoint of OAuth."""
        if endpoint == "authorize":
            return await AuthorizationHandler(self).handle(request)
        if endpoint == "token":
            answer: Response = await TokenHandler(self, ClientAuthenticator(self)).handle(request)
            return answer
        if endpoint == "revoke":
            return await self._revoke(request)
        scopes = list(map(str, self.scopes))
        options = ClientRegistrationOptions(enabled=True, valid_scopes=scopes, default_scopes=scopes)
        return await RegistrationHandler(self, options).handle(request)

    async def _revoke(self, request: Request) -> Response:
        """RFC 7009, which ends both tokens by the refresh token; the handler of `mcp` demands a client's secret.

        An access token doesn't show its client, so it isn't revoked alone.
        """
        try:
            client = await ClientAuthenticator(self).authenticate_request(request)
        except AuthenticationError as error:
            return JSONResponse({"error": "invalid_client", "error_description": error.message}, 401)
        token = str((await request.form()).get("token", ""))
        if await tokens.find(self.site.database, token):
            told = "revoke the refresh token, which ends its access token, too"
            return JSONResponse({"error": "unsupported_token_type", "error_description": told}, 400)
        plain = _access_token(token, client)
        if row := await tokens.find(self.site.database, plain):
            await tokens.revoke(self.site.database, row.name, plain)
            self.site.rights.look_again()
        return Response(headers={"Cache-Control": "no-store"})

    async def get_client(self, client_id: str) -> Client | None:
        """The client that an id describes; None if it describes none that is allowed."""
        with suppress(ValueError):
            return Client.model_validate_json(urlsafe_b64decode(client_id)).model_copy(update={"client_id": client_id})
        return None

    async def register_client(self, client_info: ClientInfo) -> None:
        """Give the client its id; raises `RegistrationError`."""
        client_info.token_endpoint_auth_method = "none"
        client_info.client_secret = client_info.client_secret_expires_at = None
        said = client_info.model_dump_json(include=_KEPT, exclude_none=True)
        client_info.client_id = urlsafe_b64encode(said.encode()).decode()
        if await self.get_client(client_info.client_id) is None:
            raise RegistrationError("invalid_redirect_uri", f"redirect_uris: {_SAFE}")

    async def authorize(self, client: ClientInfo, params: AuthorizationParams) -> str:
        """Note the request for the owner, or return where to send them with a code; raises `AuthorizeError`."""
        if not params.state:
            raise AuthorizeError("invalid_request", "state is missing")
        if not self._is_ours(params.resource or ""):  # a server elsewhere would get the token
            raise AuthorizeError("invalid_target", "resource is not the address of this server")
        scopes = [each for each in self.scopes if each in (params.scopes or self.scopes)]
        self.asked = Asked(_name_of(client), str(params.redirect_uri), scopes)
        if self.granted is None:
            return ""
        if not (granted := [each for each in scopes if each in self.granted]):
            raise AuthorizeError("access_denied", "the owner declined")
        code, about = secrets.token_urlsafe(32), params.model_dump(exclude={"scopes", "state"})
        self.site.oauth_codes[code] = AuthorizationCode(
            code=code, scopes=granted, expires_at=time() + CODE_SECONDS, client_id=client.client_id, **about
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: ClientInfo, authorization_code: str) -> AuthorizationCode | None:  # noqa: ARG002
        """The code, which is spent by that."""
        return self.site.oauth_codes.pop(authorization_code, None)

    async def exchange_authorization_code(
        self, client: ClientInfo, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """Create the client's token, which the owner sees and revokes like any other."""
        name, (issued, until) = f"{_name_of(client)} {secrets.token_hex(2)}", self._issued(client, authorization_code)
        about = self.site.database, self.site.owner.id, name, authorization_code.scopes
        await tokens.create(*about, plain=issued.access_token, expires_at=until)
        return issued

    async def load_refresh_token(self, client: ClientInfo, refresh_token: str) -> RefreshToken | None:
        """The refresh token if the access token that it was issued with was neither revoked nor renewed."""
        row = await tokens.find(self.site.database, _access_token(refresh_token, client))
        return RefreshToken(token=refresh_token, client_id=client.client_id, scopes=list(row.scopes)) if row else None

    async def exchange_refresh_token(
        self,
        client: ClientInfo,
        refresh_token: RefreshToken,
        scopes: list[str],  # noqa: ARG002
    ) -> OAuthToken:
        """Replace both tokens; raises `TokenError` if another request has, or the owner has revoked them."""
        before, (issued, until) = _access_token(refresh_token.token, client), self._issued(client, refresh_token)
        if not await tokens.renew(self.site.database, before, issued.access_token, until):
            raise TokenError("invalid_grant", "the refresh token was used before")
        return issued

    async def load_access_token(self, token: str) -> None:
        """None: `/mcp` looks tokens up itself."""

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """Nothing: `_revoke` does."""

    def _issued(self, client: ClientInfo, grant: AuthorizationCode | RefreshToken) -> tuple[OAuthToken, datetime]:
        """New tokens, and when the access token expires."""
        refresh, life = secrets.token_urlsafe(32), int(TOKEN_LIFE.total_seconds())
        plain, scope = _access_token(refresh, client), " ".join(grant.scopes)
        issued = OAuthToken(access_token=plain, refresh_token=refresh, expires_in=life, scope=scope)
        return issued, self.site.clock.now() + TOKEN_LIFE

    def _is_ours(self, resource: str) -> bool:
        at, access = urlsplit(resource), self.site.access
        host, names = at.netloc.lower(), {*LOOPBACK_HOSTS, access.page_name, *access.allowed_hosts()}
        name, port = split_host(host)
        return at.path == "/mcp" and (host in hosts_of(access.public_url) or (name in names and port == self.port))


def _name_of(client: ClientInfo) -> str:
    return one_line(client.client_name or "MCP client", MAX_CLIENT_NAME)


def _access_token(refresh_token: str, client: ClientInfo) -> str:
    """The access token that is issued with a refresh token, of this client alone; only its hash is stored."""
    digest = hmac.new(refresh_token.encode(), client.client_id.encode(), hashlib.sha256).hexdigest()
    return f"{tokens.PREFIX}{digest}"


def _is_safe(uri: AnyUrl) -> bool:
    local = uri.scheme == "http" and uri.host in LOOPBACK_HOSTS
    return (local or uri.scheme == "https" or uri.scheme in APPS) and not (uri.fragment or uri.username or uri.password)


def _without_port(uri: AnyUrl) -> str:
    return re.sub(r"^(http://(?:[^/:]+|\[[^]]+])):\d+", r"\1", str(uri))
