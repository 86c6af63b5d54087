"""An OAuth server on a real socket, which issues the tokens of a `FakeMcp`; what it says of itself can be a lie."""

import asyncio
import base64
import hashlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from tests.fakes.mcp_server import FakeMcp


@dataclass
class FakeOAuth:
    """`says` is put over its metadata; `lasts` is the lifetime of its tokens, in seconds."""

    protects: FakeMcp
    says: dict[str, Any] = field(default_factory=dict)
    lasts: int | None = 3600
    port: int = 0
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    issued: list[str] = field(default_factory=list)
    challenge: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def refresh_token(self) -> str:
        return f"refresh-{self.issued[-1]}"

    def consent(self, address: str) -> dict[str, str]:
        """The query with which a browser returns after its person has agreed."""
        asked = dict(parse_qsl(urlsplit(address).query))
        assert asked["code_challenge_method"] == "S256"
        self.challenge = asked["code_challenge"]
        return {"code": "the-code", "state": asked["state"], "iss": self.url}

    def asked_for(self, path: str) -> list[dict[str, str]]:
        return [fields for each, fields in self.asked if each == path]

    def _metadata(self) -> dict[str, Any]:
        ends = {f"{name}_endpoint": f"{self.url}/{name}" for name in ("token", "registration", "revocation")}
        own = {"issuer": self.url, "authorization_endpoint": f"{self.url}/authorize", **ends}
        return {**own, "authorization_response_iss_parameter_supported": True, **self.says}

    def _token(self, fields: dict[str, str]) -> Response:
        if fields["grant_type"] == "authorization_code":
            digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
            good = base64.urlsafe_b64encode(digest).decode().rstrip("=") == self.challenge
            good = good and fields["code"] == "the-code"
        else:
            good = fields["refresh_token"] == self.refresh_token
        if not good:
            return JSONResponse({"error": "invalid_grant"}, 400)
        self.issued.append(f"access-{uuid4().hex}")
        self.protects.token = self.issued[-1]
        lasts = {} if self.lasts is None else {"expires_in": self.lasts}
        token = {"access_token": self.issued[-1], "token_type": "bearer", "refresh_token": self.refresh_token}
        return JSONResponse(token | lasts)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        if path == "/.well-known/oauth-authorization-server":
            return JSONResponse(self._metadata())
        if path == "/authorize":  # its person is signed in, and says yes at once
            back = f"{request.query_params['redirect_uri']}?{urlencode(self.consent(str(request.url)))}"
            return RedirectResponse(back, 303)
        if path == "/registration":
            body = await request.json()
            self.asked.append((path, body))
            return JSONResponse({**body, "client_id": "registered", "token_endpoint_auth_method": "none"}, 201)
        fields = {key: str(value) for key, value in (await request.form()).items()}
        kind, _, basic = request.headers.get("authorization", "").partition(" ")
        if kind == "Basic":
            fields["client_id"], _, fields["client_secret"] = base64.b64decode(basic).decode().partition(":")
        self.asked.append((path, fields))
        return self._token(fields) if path == "/token" else Response(status_code=200 if path == "/revocation" else 404)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self._answer(Request(scope, receive)))(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeOAuth"]:
        """Serve, and protect the server."""
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(self, log_level="critical", lifespan="off"))
        self.protects.token = "nobody has it yet"
        self.protects.resource = {"resource": self.protects.url, "authorization_servers": [self.url]}
        task = asyncio.create_task(server._serve([listening]))
        try:
            yield self
        finally:
            server.should_exit = server.force_exit = True
            await task
            listening.close()
