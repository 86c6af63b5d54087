"""Signing in to an MCP server by OAuth, with the official client's provider over the guarded client.

Imports both, so: in a thread.

The provider discovers who issues tokens for the server, registers there, and checks issuer, resource, PKCE and state.
Ours keeps what it found with the tokens, so that they are renewed where they were issued, after a restart, too.
"""

import asyncio
from collections.abc import AsyncGenerator, Hashable, Mapping
from contextlib import suppress
from functools import partial
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from httpx2 import AsyncClient, HTTPError, Request, Response
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.types import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl, BaseModel, ValidationError

from gateway.beside import cancel
from gateway.domain.text.texts import one_line
from gateway.net import client
from gateway.net.client import FindRules, Limits
from gateway.net.errors import NetError
from gateway.net.mcp.server import McpEndpoint, SignIn

LIFETIME_SECONDS = 600.0
"""The time that a person has to sign in."""
_HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": LATEST_PROTOCOL_VERSION}
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
"""A request that any server refuses before its person has signed in."""


class StoredSignIn(BaseModel):
    """A sign-in as it is stored: the part of the provider's context, under its names, that outlives the process."""

    current_tokens: OAuthToken
    token_expiry_time: float | None = None
    client_info: OAuthClientInformationFull
    oauth_metadata: OAuthMetadata | None = None
    protected_resource_metadata: ProtectedResourceMetadata | None = None

    @classmethod
    def of(cls, sign_in: SignIn) -> "StoredSignIn | None":
        """None if there is none that can be read."""
        with suppress(ValidationError):
            return cls.model_validate_json(sign_in.stored)
        return None


class Provider(OAuthClientProvider):
    """The official provider as its own storage, which has a registered client at most."""

    def __init__(self, endpoint: McpEndpoint, sign_in: SignIn, redirect: str = "") -> None:
        self.endpoint, self.sign_in = endpoint, sign_in
        uris = [AnyUrl(redirect)] if redirect else None
        kind: Literal["web", "native"] = "web" if redirect.startswith("https:") else "native"
        metadata = OAuthClientMetadata(client_name="SupaClaw", redirect_uris=uris, application_type=kind)
        super().__init__(endpoint.url, metadata, self)

    async def get_tokens(self) -> OAuthToken | None:
        """No tokens: new ones are asked for."""
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:  # noqa: ARG002
        """Store new tokens, which are in the context by now, before they are used."""
        stored = StoredSignIn.model_validate(self.context, from_attributes=True)
        await self.sign_in.save(stored.model_dump_json(exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The configured client; None: one has to be registered."""
        if not self.sign_in.client_id:
            return None
        given = {"client_id": self.sign_in.client_id, "client_secret": self.sign_in.client_secret or None}
        return OAuthClientInformationFull(**given, token_endpoint_auth_method="client_secret_basic")

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Nothing: it is stored with its tokens."""


class Renewal(Provider):
    """Sends the stored tokens and renews them; asks nobody."""

    async def _initialize(self) -> None:
        if stored := StoredSignIn.of(self.sign_in):
            vars(self.context).update(stored)
        self._initialized = True

    async def _auth_flow(self, request: Request) -> AsyncGenerator[Request, Response]:
        """Renew the token once if the server refuses it before its time; raises `NetError` if that doesn't help."""
        async with self.context.lock:
            if not self._initialized:
                await self._initialize()
            for _ in range(2):
                if not self.context.is_token_valid() and self.context.can_refresh_token():
                    await self._handle_refresh_response((yield await self._refresh_token()))
                self._add_auth_header(request)
                if (yield request).status_code != 401:
                    return
                self.context.token_expiry_time = 1.0
        how = "choose Connect beside it under Tools & skills on the page (/web sends a link), or set its headers."
        raise NetError("sign_in", f"{self.endpoint.host} answered 401 (Unauthorized); {how}")


class SignInFlow(Provider):
    """One sign-in under way, of one person in one browser; it ends after ten minutes."""

    def __init__(self, whose: Hashable, browser: str, endpoint: McpEndpoint, redirect: str, rules: FindRules) -> None:
        assert endpoint.sign_in is not None, "only begun where there is one"
        super().__init__(endpoint, endpoint.sign_in, redirect)
        self.whose, self.browser, self._rules = whose, browser, rules
        self.context.redirect_handler, self.context.callback_handler = self._ask, lambda: self._answer
        loop = asyncio.get_running_loop()
        self._address: asyncio.Future[str] = loop.create_future()
        self._answer: asyncio.Future[AuthorizationCodeResult] = loop.create_future()
        self._task = asyncio.create_task(self._run(), name=f"sign in to {endpoint.name}")

    @property
    def state(self) -> str:
        """The state in its address, by which the browser's answer finds it."""
        return parse_qs(urlsplit(self._address.result()).query)["state"][0]

    async def address(self) -> str:
        """The address at which the person signs in; raises `NetError`."""
        futures: set[asyncio.Future[str] | asyncio.Future[None]] = {self._address, self._task}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if not self._address.done():
            await self._task
            raise NetError("no_sign_in", f"{self.endpoint.host} doesn't ask for a sign-in.")
        return self._address.result()

    async def finish(self, answer: Mapping[str, str]) -> None:
        """Exchange the code for tokens, which are stored; raises `NetError`."""
        if not (code := answer.get("code")):
            await self.close()
            raise NetError("declined", f"{self.endpoint.host} wasn't connected: the sign-in was declined there.")
        self._answer.set_result(AuthorizationCodeResult(code=code, state=answer["state"], iss=answer.get("iss")))
        await self._task

    async def close(self) -> None:
        """Give up."""
        await cancel(self._task)

    async def _ask(self, address: str) -> None:
        """Hand out the address that the provider made; raises `NetError` if the person should not go there."""
        await _require_secure(self.endpoint, Request("GET", address))
        now, before = self.context.oauth_metadata, StoredSignIn.of(self.sign_in)
        if before and before.oauth_metadata and (now is None or before.oauth_metadata.issuer != now.issuer):
            message = f"{self.endpoint.host} now signs in elsewhere than before; if that is right, disconnect it first."
            raise NetError("issuer_changed", message)
        self._address.set_result(address)

    async def _run(self) -> None:
        """Sign in; the provider stores the tokens before it sends the request again, whose answer doesn't matter."""
        endpoint, host = self.endpoint, self.endpoint.host
        http = _secure_client(endpoint, self._rules, {**endpoint.headers, **_HEADERS})
        request = http.stream("POST", endpoint.url, json=_PING, auth=self)
        try:
            async with asyncio.timeout(LIFETIME_SECONDS), http, request:
                pass
        except TimeoutError:
            raise NetError("timeout", f"The sign-in at {host} took too long; connect again.") from None
        except HTTPError as error:
            raise client.translate_error(host, error) from error
        except (OAuthFlowError, ValueError) as error:
            text = f"{host} refused the sign-in: {one_line(str(error), 300)}"
            raise NetError("sign_in_refused", text, foreign=True) from error


async def revoke(endpoint: McpEndpoint, rules: FindRules) -> None:
    """Revoke stored tokens where they were issued, if that can be reached. Never raises."""
    with suppress(NetError, HTTPError):
        stored = StoredSignIn.of(endpoint.sign_in) if endpoint.sign_in else None
        if endpoint.sign_in and stored and stored.oauth_metadata and stored.oauth_metadata.revocation_endpoint:
            tokens, context = stored.current_tokens, Provider(endpoint, endpoint.sign_in).context
            context.client_info = stored.client_info
            fields = {"token": tokens.refresh_token or tokens.access_token, "client_id": stored.client_info.client_id}
            fields, headers = context.prepare_token_auth(fields, {})
            async with _secure_client(endpoint, rules, headers) as http:
                await http.post(str(stored.oauth_metadata.revocation_endpoint), data=fields)


def _secure_client(endpoint: McpEndpoint, rules: FindRules, headers: Mapping[str, str]) -> AsyncClient:
    http = client.guarded(rules, Limits(2**20), headers)
    http.event_hooks = {"request": [partial(_require_secure, endpoint)]}
    return http


async def _require_secure(endpoint: McpEndpoint, request: Request) -> None:
    """Raise `NetError` for a plain address that a server with https names: such as one in our own network."""
    if request.url.scheme != "https" and urlsplit(endpoint.url).scheme == "https":
        raise NetError("insecure", f"{endpoint.host} names an address without https for its sign-in; it wasn't used.")
