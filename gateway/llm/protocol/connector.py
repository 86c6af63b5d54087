"""aiohttp's connections, with a bound on what may come before an answer. Imports aiohttp."""

from collections.abc import Callable
from functools import partial

from aiohttp import ClientConnectionError, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader

_MAX_HINTS = 16


class _Connection(ResponseHandler):
    async def read(self) -> tuple[RawResponseMessage, StreamReader]:
        for _ in range(_MAX_HINTS):
            message, body = await super().read()
            if message.code >= 200 or message.code == 101:
                return message, body
        raise ClientConnectionError(f"it sent {_MAX_HINTS} hints and no answer")


def bound_hints(connector: TCPConnector) -> TCPConnector:
    """The connector, failing requests that are answered with hints (1xx) for ever: aiohttp would never pause."""
    make: Callable[..., ResponseHandler] = _Connection
    connector._factory = partial(make, loop=connector._loop)
    return connector
