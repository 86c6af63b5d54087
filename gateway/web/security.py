"""Checks on every request before it reaches a route: host, origin and size."""

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.web.access import bearer_alone
from gateway.web.errors import Refused
from gateway.web.origin import LOOPBACK, is_foreign, split_host

MAX_BODY = 4 * 1024 * 1024
MAX_INLINE = 24 * 1024 * 1024
"""For a chat completion, which is held in memory as a whole."""
MAX_UPLOAD = 2**31
"""For a streamed upload; the file limit is checked there, with a better error."""
MAX_TRIGGER = 256 * 1024


@dataclass(frozen=True, slots=True)
class RequestGuard:
    """Refuses requests for other hosts (DNS rebinding), from other origins (CSRF), and oversized ones (flooding)."""

    app: ASGIApp
    allowed_hosts: frozenset[str]
    page_name: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it. There are no websockets."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            headers = Headers(scope=scope)
            refused = await self._refusal(scope, headers)
            if refused is not None:
                await JSONResponse(refused.body(), refused.status)(scope, receive, send)
            else:
                await self.app(scope, _limited(receive, limit_of(scope["path"])), send)

    async def _refusal(self, scope: Scope, headers: Headers) -> Refused | None:
        host = headers.get("host", "").lower()
        if len(headers.getlist("host")) != 1 or not self._serves(host):
            return Refused(421, "unknown_host", "This gateway does not answer to that host name.")
        pushed, request = scope["path"].startswith(("/webhook/", "/trigger")), Request(scope)
        if not pushed and is_foreign(request) and not await bearer_alone(request):
            return Refused(403, "foreign_origin", "Requests from other web pages are refused.")
        length, limit = headers.get("content-length", "0"), limit_of(scope["path"])
        return None if length.isdecimal() and int(length) <= limit else _too_large(limit)

    def _serves(self, host: str) -> bool:
        name, port = split_host(host)
        if port and not port.isdecimal():
            return False
        return name in LOOPBACK or name == self.page_name or host in self.allowed_hosts


def limit_of(path: str) -> int:
    """The most bytes of a request to this path."""
    if path == "/trigger" or path.startswith("/trigger/"):
        return MAX_TRIGGER
    return {"/api/files": MAX_UPLOAD, "/chat/files": MAX_UPLOAD, "/v1/chat/completions": MAX_INLINE}.get(path, MAX_BODY)


def _too_large(limit: int) -> Refused:
    size = f"{limit // 1024**2} MB" if limit >= 1024**2 else f"{limit // 1024} KB"
    return Refused(413, "too_large", f"The request is too large; the limit is {size}.")


def _limited(receive: Receive, limit: int) -> Receive:
    """Count the bytes received: a request need not declare its length."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise _too_large(limit)
        return message

    return counted
