"""Requests to declared APIs: built from arguments, with their credential added last, and bounded.

Refresh tokens are exchanged for access tokens in the same way."""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from pydantic import BaseModel, Field, ValidationError

from gateway.domain.conversation.tools import Operation, RequestPart
from gateway.domain.errors import raising
from gateway.domain.json import Json, text_or_json
from gateway.net.addresses import Rules, parse_url, redirect_target
from gateway.net.errors import NetError
from gateway.net.fetch import load_client, redirection
from gateway.secrets.injection import Outgoing

if TYPE_CHECKING:
    from httpx2 import AsyncClient


MAX_API_REDIRECTS = 3
_SECONDS, _BYTES = 40.0, 2 * 2**20


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """The response of an API; all of it is the words of its host."""

    status: int
    mime: str
    text: str


def build_request(operation: Operation, base: str, given: Mapping[str, Json], headers: Mapping[str, str]) -> Outgoing:
    """The request for these arguments; raises `NetError` for a value that doesn't fit its place."""
    check_arguments(operation.slots, operation.required, given)
    parts: dict[RequestPart, dict[str, Json]] = {"path": {}, "query": {}, "header": {}, "body": {}}
    for name, value in given.items():
        if value is not None:
            slot = operation.slots[name]
            parts[slot.part][slot.name] = value
    path = operation.path
    for name, value in parts["path"].items():
        path = path.replace(f"{{{name}}}", _segment(name, value))
    query = urlencode([pair for name, value in parts["query"].items() for pair in _pairs(name, value)])
    url = parse_url(f"{base}{path}{'?' if query else ''}{query}").url
    named = {name: _header(name, value) for name, value in parts["header"].items()}
    body = ""
    if fields := parts["body"]:
        body = json.dumps(fields.get("", fields), ensure_ascii=False)
        named["Content-Type"] = "application/json"
    return Outgoing(operation.method, url, {"Accept": "application/json", **headers, **named}, body=body)


def check_arguments(known: Collection[str], required: Iterable[str], given: Mapping[str, Json]) -> None:
    """Raise `NetError` if a required argument is missing or one is unknown."""
    takes = f"it takes: {', '.join(known) or 'none'}."
    if missing := [name for name in required if given.get(name) is None]:
        raise NetError("invalid_arguments", f"{missing[0]} is missing; {takes}")
    if unknown := sorted(given.keys() - known):
        raise NetError("invalid_arguments", f"{unknown[0][:80]!r} isn't one; {takes}")


async def send(request: Outgoing, rules: Callable[[], Rules]) -> ApiResponse:
    """Send it, whatever the status of the response; raises `NetError`. Only GET follows redirects within the origin."""
    client, target = await asyncio.to_thread(load_client), parse_url(request.url)
    async with client.guarded(rules, client.Limits(_BYTES, _SECONDS)) as http:
        advice = "try again later" if request.method == "GET" else "it may have carried out the request"
        with raising(NetError("timeout", f"{target.host} took too long; {advice}."), TimeoutError):
            async with asyncio.timeout(_SECONDS):
                with client.translated_errors(target.host):
                    return await _answered(http, request)


async def _answered(http: "AsyncClient", request: Outgoing) -> ApiResponse:
    target, headers = parse_url(request.url), dict(request.headers)
    content = urlencode(request.fields) if request.fields else request.body
    if request.fields:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    for _ in range(MAX_API_REDIRECTS + 1):
        async with http.stream(
            request.method, target.url, headers=headers, content=content.encode() or None, follow_redirects=False
        ) as response:
            if (location := redirection(response)) is None:
                body = b"".join([piece async for piece in response.aiter_raw()])
                mime = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
                return ApiResponse(response.status_code, mime, body.decode("utf-8", "replace"))
        following = redirect_target(target, location)
        if request.method not in ("GET", "HEAD") or following.origin != target.origin:
            raise NetError("redirected", f"{target.host} redirects this request elsewhere; it was not sent there.")
        target = following
    raise NetError("too_many_redirects", f"{target.host} redirects more than {MAX_API_REDIRECTS} times.")


def _segment(name: str, value: Json) -> str:
    """A value as one segment of a path: never another path, even at a server that decodes slashes."""
    text = text_or_json(value)
    if not text or {".", ".."} & set(text.replace("\\", "/").split("/")):
        raise NetError("invalid_arguments", f"{name} can't be a part of an address.")
    return quote(text, safe="")


def _pairs(name: str, value: Json) -> list[tuple[str, str]]:
    values = value if isinstance(value, list | tuple) else [value]
    return [(name, text_or_json(each)) for each in values]


def _header(name: str, value: Json) -> str:
    text = text_or_json(value)
    if not text.isascii() or not text.isprintable() or "${" in text:
        raise NetError("invalid_arguments", f"{name} is sent in a header: only plain ASCII can be, and no secret.")
    return text


DEFAULT_TOKEN_SECONDS = 600
"""The life of a token whose endpoint doesn't state it."""
_ERROR_CODE = re.compile(r'"error"\s*:\s*"([a-z_]{1,40})"')


class TokenResponse(BaseModel):
    """The tokens of an endpoint; `refresh_token` replaces the one that was sent."""

    access_token: str = Field(min_length=1, max_length=16_384, pattern=r"^[\x21-\x7e]+$", repr=False)
    expires_in: float = Field(DEFAULT_TOKEN_SECONDS, ge=0, le=10**8)
    refresh_token: str | None = Field(None, min_length=1, max_length=16_384, pattern=r"^[\x21-\x7e]+$", repr=False)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token, and when it expires by the caller's monotonic clock."""

    token: str = field(repr=False)
    until: float


async def exchange_refresh_token(request: Outgoing, rules: Callable[[], Rules]) -> TokenResponse:
    """Send a token request; raises `NetError`, which never quotes the answer."""
    answer, host = await send(request, rules), parse_url(request.url).host
    if answer.status != 200:
        message = f"{host} refused the refresh token{_refusal_reason(answer)}; {_REFUSED_ADVICE}"
        raise NetError("credential_refused", message)
    try:
        return TokenResponse.model_validate_json(answer.text)
    except ValidationError:
        raise NetError("bad_answer", f"{host} did not answer as a token endpoint does.") from None


_REFUSED_ADVICE = "if it was revoked or has expired, its owner has to store a new one."


def _refusal_reason(answer: ApiResponse) -> str:
    found = _ERROR_CODE.search(answer.text[:10_000])
    return f" ({answer.status}, {found[1]})" if found else f" ({answer.status})"
