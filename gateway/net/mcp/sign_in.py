"""Signing in to an MCP server by OAuth, with the official client's provider over the guarded client.

Imports both, so: in a thread.

The provider discovers who issues tokens for the server, registers there, and checks issuer, resource, PKCE and state.
Ours keeps what it found with the tokens, so that they are renewed where they were issued, after a restart, too.
"""

import asyncio
from collections.abc import AsyncGenerator, Hashable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
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

from gateway.domain.text.texts import one_line
from gateway.net import client
from gateway.net.client import Limits
from gateway.net.errors import NetError
from gateway.net.mcp.server import McpEndpoint, ServerError, SignIn

LIFETIME_SECONDS = 600.0
"""The time that a person has to sign in."""
_LIMITS = Limits(2**20, 20.0)
_NOWHERE = "http://127.0.0.1/"
"""The redirect address of a provider that can't ask a person."""
_HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": LATEST_PROTOCOL_VERSION}
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
"""A request that any server refuses before its person has signed in."""


class Kept(BaseModel):
    """A sign-in as it is stored."""

    tokens: OAuthToken
    expires_at: float | None = None
    client: OAuthClientInformationFull
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None


class Provider(OAuthClientProvider):
    """Sends the stored tokens and renews them; its own storage. It asks a person only for a `SignInFlow`."""

    def __init__(self, endpoint: McpEndpoint, sign_in: SignIn, flow: "SignInFlow | None" = None) -> None:
        self.endpoint, self._sign_in, self._kept = endpoint, sign_in, None if flow else stored_in(sign_in)
        redirect = flow.redirect if flow else _NOWHERE
        metadata = OAuthClientMetadata(client_name="SupaClaw", redirect_uris=[AnyUrl(redirect)])
        if redirect.startswith("https:"):
            metadata.application_type = "web"
        super().__init__(endpoint.url, metadata, self, *((flow.ask, lambda: flow.answer) if flow else ()))

    async def async_auth_flow(self, request: Request) -> AsyncGenerator[Request, Response]:
        """Renew the token once if the server refuses it before its time; raises `NetError` if that doesn't help."""
        for _ in range(2):
            async with aclosing(super().async_auth_flow(request)) as flow:
                outgoing = await anext(flow)
                while True:
                    response = yield outgoing
                    refused = outgoing is request and response.status_code == 401
                    if refused and self.context.redirect_handler is None:
                        break
                    try:
                        outgoing = await flow.asend(response)
                    except StopAsyncIteration:
                        return
            self.context.token_expiry_time = 1.0
        raise needs_sign_in(self.endpoint)

    async def get_tokens(self) -> OAuthToken | None:
        """The stored tokens, with what belongs to them."""
        if kept := self._kept:
            self.context.oauth_metadata, self.context.protected_resource_metadata = kept.metadata, kept.resource
            self.context.token_expiry_time = kept.expires_at
        return kept.tokens if kept else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store new tokens before they are used."""
        context = self.context
        assert context.client_info is not None, "tokens are issued to a client"
        self._kept = Kept(
            tokens=tokens,
            expires_at=context.token_expiry_time,
            client=context.client_info,
            metadata=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )
        await self._sign_in.save(self._kept.model_dump_json(exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The client that the tokens were issued to, or the configured one; None: one has to be registered."""
        if self._kept or not self._sign_in.client_id:
            return self._kept.client if self._kept else None
        given = {"client_id": self._sign_in.client_id, "client_secret": self._sign_in.client_secret or None}
        return OAuthClientInformationFull(**given, token_endpoint_auth_method="client_secret_basic")

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Nothing: it is stored with its tokens."""


def stored_in(sign_in: SignIn | None) -> Kept | None:
    """The stored sign-in; None if there is none that can be read."""
    with suppress(ValidationError):
        return Kept.model_validate_json(sign_in.stored) if sign_in else None
    return None


def needs_sign_in(endpoint: McpEndpoint) -> NetError:
    """The error of a server that takes no request before its person has signed in."""
    how = "choose Connect beside it under Tools & skills on the page (/web sends a link), or set its headers."
    return NetError("sign_in", f"{endpoint.host} answered 401 (Unauthorized); {how}")


@dataclass(eq=False)
class SignInFlow:
    """One sign-in under way, of one person in one browser; it ends after ten minutes."""

    whose: Hashable
    browser: str
    endpoint: McpEndpoint
    redirect: str
    rules: client.FindRules

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._address: asyncio.Future[str] = loop.create_future()
        self.answer: asyncio.Future[AuthorizationCodeResult] = loop.create_future()
        self._task = asyncio.create_task(self._run(), name=f"sign in to {self.endpoint.name}")

    @property
    def state(self) -> str:
        """The state in its address, by which the browser's answer finds it."""
        return parse_qs(urlsplit(self._address.result()).query)["state"][0]

    async def address(self) -> str:
        """The address at which the person signs in; raises `NetError`."""
        futures: set[asyncio.Future[str] | asyncio.Future[None]] = {self._address, self._task}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if not self._address.done():
            await self._ended()
            raise NetError("no_sign_in", f"{self.endpoint.host} doesn't ask for a sign-in.")
        return self._address.result()

    async def finish(self, answer: Mapping[str, str]) -> None:
        """Exchange the code for tokens, which are stored; raises `NetError`."""
        if not (code := answer.get("code")):
            await self.close()
            raise NetError("declined", f"{self.endpoint.host} wasn't connected: the sign-in was declined there.")
        self.answer.set_result(AuthorizationCodeResult(code=code, state=answer["state"], iss=answer.get("iss")))
        await self._ended()

    async def close(self) -> None:
        """Give up."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def ask(self, address: str) -> None:
        """Hand out the address that the provider made; raises `NetError` if the person should not go there."""
        _require_secure(self.endpoint, address)
        now, before = self._provider.context.oauth_metadata, stored_in(self.endpoint.sign_in)
        if before and before.metadata and (now is None or before.metadata.issuer != now.issuer):
            message = f"{self.endpoint.host} now signs in elsewhere than before; if that is right, disconnect it first."
            raise NetError("issuer_changed", message)
        self._address.set_result(address)

    async def _ended(self) -> None:
        host = self.endpoint.host
        try:
            await self._task
        except TimeoutError:
            raise NetError("timeout", f"The sign-in at {host} took too long; connect again.") from None
        except HTTPError as error:
            raise client.translate_error(host, error) from error
        except (OAuthFlowError, ValueError) as error:
            raise ServerError("sign_in_refused", f"{host} refused the sign-in: {one_line(str(error), 300)}") from error

    async def _run(self) -> None:
        endpoint = self.endpoint
        assert endpoint.sign_in is not None, "only begun where there is one"
        self._provider = provider = Provider(endpoint, endpoint.sign_in, self)
        http = _secure_client(endpoint, self.rules, {**endpoint.headers, **_HEADERS})
        request = http.stream("POST", endpoint.url, json=_PING, auth=provider)
        async with asyncio.timeout(LIFETIME_SECONDS), http, request:
            pass  # the provider stores the tokens before it sends the request again, whose answer doesn't matter


def _secure_client(endpoint: McpEndpoint, rules: client.FindRules, headers: Mapping[str, str]) -> AsyncClient:
    async def check(request: Request) -> None:
        _require_secure(endpoint, str(request.url))

    http = client.guarded(rules, _LIMITS, headers)
    http.event_hooks = {"request": [check]}
    return http


def _require_secure(endpoint: McpEndpoint, address: str) -> None:
    """Raise `NetError` for a plain address that a server with https names: such as one in our own network."""
    if urlsplit(address).scheme != "https" and urlsplit(endpoint.url).scheme == "https":
        raise NetError("insecure", f"{endpoint.host} names an address without https for its sign-in; it wasn't used.")


async def revoke(endpoint: McpEndpoint, rules: client.FindRules) -> bool:
    """Revoke stored tokens where they were issued; returns whether it was done. Never raises."""
    with suppress(NetError, HTTPError):
        kept, sign_in = stored_in(endpoint.sign_in), endpoint.sign_in
        if kept is None or sign_in is None or (at := kept.metadata and kept.metadata.revocation_endpoint) is None:
            return False
        token = kept.tokens.refresh_token or kept.tokens.access_token
        context = Provider(endpoint, sign_in).context
        context.client_info = kept.client
        fields, headers = context.prepare_token_auth({"token": token, "client_id": kept.client.client_id}, {})
        async with _secure_client(endpoint, rules, headers) as http:
            return (await http.post(str(at), data=fields)).is_success
    return False
