"""Requests to one endpoint: a lazily opened connection pool, with failures raised as `ModelError`."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import version
from io import BytesIO
from json import dumps
from typing import TYPE_CHECKING

from gateway.domain.json import JsonObject
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.protocol.bounds import PIECE_BYTES, beginning, refuse_encoded
from gateway.llm.protocol.refusal import parse_refusal

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiohttp import ClientResponse, ClientSession, FormData, TCPConnector
    from aiohttp.http_parser import RawResponseMessage
    from aiohttp.streams import StreamReader

_CONNECT_S = 20.0
_KEEP_ALIVE_S = 60.0
_CONNECTIONS = 1000
_MAX_HEADER_BYTES = 2**15
"""Some services send more than the usual 8 KB."""
_MAX_HINTS = 16


class HttpClient:
    """Posts to paths below `base_url`, with the key as bearer token, through the proxy set in the environment."""

    def __init__(self, base_url: str, key: str | None) -> None:
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._session: ClientSession | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> "ClientSession":
        """Import the library in a thread and create the pool; opens no connection yet."""
        async with self._opening:
            if self._session is None:
                self._session = _session(await asyncio.to_thread(_trusted), _proxy(self._base_url), self._key)
            return self._session

    async def close(self) -> None:
        """Close every connection; a later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def post(
        self, path: str, body: "JsonObject | FormData", timeout: float | None = None
    ) -> AsyncGenerator["ClientResponse", None]:
        """The response, with its body unread; `timeout` is in seconds and covers the body too.

        Raises `ModelError` if the request is refused, and for failures of the connection, also while the body is read.
        """
        session = self._session or await self.open()
        from aiohttp import ClientError, ClientTimeout

        timeouts = ClientTimeout(total=timeout, sock_connect=_CONNECT_S)
        data = BytesIO(dumps(body).encode()) if isinstance(body, Mapping) else body
        headers = {"Content-Type": "application/json"} if isinstance(body, Mapping) else None
        try:
            async with session.post(self._base_url + path, data=data, headers=headers, timeout=timeouts) as response:
                if response.method != "POST":  # a redirect by 301 or 302 loses the request
                    raise ModelError(ErrorKind.BAD_REQUEST, f"it redirects to {response.url}; change base_url")
                refuse_encoded(response.status, response.headers, "gzip", "deflate")
                if response.status >= 400:
                    refusal = await beginning(response.content.iter_any())
                    raise parse_refusal(refusal, response.status, response.headers)
                yield response
        except (ClientError, OSError) as error:
            host = self._base_url.partition("://")[2].partition("/")[0] or self._base_url
            raise ModelError(ErrorKind.NETWORK, f"{host}: {_reason(error)}") from error


def _trusted() -> "SSLContext":
    """The system's certificates, or certifi's on systems that have none."""
    import ssl

    import certifi

    import_module("aiohttp")
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def _proxy(base_url: str) -> str | None:
    """The proxy by HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY."""
    from urllib.request import getproxies, proxy_bypass

    scheme, _, rest = base_url.partition("://")
    if proxy_bypass(rest.partition("/")[0]):
        return None
    proxies = getproxies()
    return proxies.get(scheme) or proxies.get("all")


def _session(trusted: "SSLContext", proxy: str | None, key: str | None) -> "ClientSession":
    from aiohttp import ClientSession, DummyCookieJar

    bearer = "".join((key or "none").split())  # a line break copied along with the key would end the header
    return ClientSession(
        connector=_connector(trusted),
        headers={
            "Authorization": f"Bearer {bearer}",
            "User-Agent": f"SupaClaw/{version('supaclaw')}",
            "Accept-Encoding": "identity",
        },
        read_bufsize=PIECE_BYTES,
        cookie_jar=DummyCookieJar(),
        proxy=proxy,
        max_line_size=_MAX_HEADER_BYTES,
        max_field_size=_MAX_HEADER_BYTES,
    )


def _connector(trusted: "SSLContext") -> "TCPConnector":
    """A connector that fails a request answered by hints (1xx) without end; aiohttp would read them forever."""
    from aiohttp import ClientConnectionError, TCPConnector
    from aiohttp.client_proto import ResponseHandler

    class Connection(ResponseHandler):
        async def read(self) -> "tuple[RawResponseMessage, StreamReader]":
            for _ in range(_MAX_HINTS):
                message, body = await super().read()
                if message.code >= 200 or message.code == 101:
                    return message, body
            raise ClientConnectionError(f"it sent {_MAX_HINTS} hints and no answer")

    connector = TCPConnector(ssl=trusted, limit=_CONNECTIONS, keepalive_timeout=_KEEP_ALIVE_S)
    make: Callable[..., ResponseHandler] = Connection
    connector._factory = partial(make, loop=connector._loop)
    return connector


def _reason(error: Exception) -> str:
    from aiohttp import ClientConnectorError, ClientPayloadError, InvalidURL

    if isinstance(error, InvalidURL):
        return f"{error.url} is not a valid address"
    if isinstance(error, ClientPayloadError):
        return "the answer was cut off"
    if encoding := re.search(r"content-encoding: \w+ \((\w+)\)", str(error)):
        return f"the answer is compressed ({encoding[1]}), which was not asked for; switch that off at the server"
    if isinstance(error, TimeoutError) and not str(error):
        return "it took too long"
    cause = error.os_error if isinstance(error, ClientConnectorError) else error
    return str(cause) or type(cause).__name__
