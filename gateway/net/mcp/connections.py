"""The open connections to MCP servers: made when one is needed, kept while it is used."""

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
    """One per person and server. `rules` say where they may go; asked at each request."""

    rules: Callable[[], Rules]
    _open: dict[Hashable, "Connection"] = field(default_factory=dict, init=False)
    _locks: dict[Hashable, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock), init=False)

    async def get(self, whose: Hashable, endpoint: McpEndpoint) -> tuple["Connection", bool]:
        """A living one, and whether its tools were listed anew. Raises `NetError`.

        One that dropped, or whose address or credentials are others now, is replaced.
        """
        key = whose, endpoint.name
        async with self._locks[key]:
            kept = self._open.get(key)
            if kept is not None and kept.alive and kept.endpoint == endpoint:
                with suppress(NetError):  # it dropped while nobody used it
                    return kept, await kept.refresh()
            if kept is not None:
                await kept.close()
            module = await asyncio.to_thread(_loaded)
            kept = self._open[key] = module.Connection(endpoint, self.rules)
            return kept, await kept.refresh()

    def alive(self, whose: Hashable, name: str) -> bool:
        """Whether there is one that a call can be tried on."""
        return (kept := self._open.get((whose, name))) is not None and kept.alive

    async def close(self) -> None:
        """All of them."""
        await asyncio.gather(*(each.close() for each in self._open.values()))
        self._open.clear()


def _loaded() -> ModuleType:
    """The official client takes most of a second to import. It logs what a server sends, however much that is."""
    getLogger("mcp").setLevel(CRITICAL)
    fetch.load_client()
    return import_module("gateway.net.mcp.connection")
