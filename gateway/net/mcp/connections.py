"""The open connections to MCP servers: opened on demand, kept open while in use."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from logging import CRITICAL, getLogger
from types import ModuleType
from typing import TYPE_CHECKING

from gateway.net import fetch
from gateway.net.addresses import Rules
from gateway.net.errors import NetError
from gateway.net.mcp.server import McpEndpoint

if TYPE_CHECKING:
    from gateway.net.mcp.connection import Connection


@dataclass
class Connections:
    """One per person and server. `rules` limit the addresses and are read at each request."""

    rules: Callable[[], Rules]
    _open: dict[Hashable, "Connection"] = field(default_factory=dict, init=False)
    _locks: dict[Hashable, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock), init=False)

    async def get(self, whose: Hashable, endpoint: McpEndpoint) -> tuple["Connection", bool]:
        """A live connection, and whether its tools were just listed. Raises `NetError`.

        A connection that dropped, or whose address or credentials have changed, is replaced.
        """
        key = whose, endpoint.name
        async with self._locks[key]:
            current = self._open.get(key)
            if current is not None and current.alive and current.endpoint == endpoint:
                with suppress(NetError):  # it dropped while idle
                    return current, await current.refresh()
            if current is not None:
                await current.close()
            module = await asyncio.to_thread(_load_sdk)
            opened = self._open[key] = module.Connection(endpoint, self.rules)
            return opened, await opened.refresh()

    def alive(self, whose: Hashable, name: str) -> bool:
        """Whether a connection is open that a call can use."""
        return (connection := self._open.get((whose, name))) is not None and connection.alive

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(each.close() for each in self._open.values()))
        self._open.clear()


def _load_sdk() -> ModuleType:
    """Import the official client, which takes most of a second. Its log is off: it copies all that a server sends."""
    getLogger("mcp").setLevel(CRITICAL)
    fetch.load_client()
    return import_module("gateway.net.mcp.connection")
