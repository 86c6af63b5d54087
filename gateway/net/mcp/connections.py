"""The open connections to MCP servers: opened on demand, kept open while in use."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from logging import CRITICAL, getLogger
from types import ModuleType
from typing import TYPE_CHECKING

from cachetools import FIFOCache

from gateway.net import fetch
from gateway.net.addresses import Rules
from gateway.net.errors import NetError
from gateway.net.mcp.server import McpEndpoint

if TYPE_CHECKING:
    from gateway.net.mcp.connection import Connection
    from gateway.net.mcp.sign_in import SignInFlow


@dataclass
class Connections:
    """One per person and server. `rules` limit the addresses and are read at each request."""

    rules: Callable[[], Rules]
    _open: dict[Hashable, "Connection"] = field(default_factory=dict, init=False)
    _locks: dict[Hashable, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock), init=False)

    _flows: FIFOCache[str, "SignInFlow"] = field(default_factory=lambda: FIFOCache(20), init=False)
    """Sign-ins under way, by their state."""
    _older: set[str] = field(default_factory=set, init=False)
    """Addresses of servers that want the handshake of before 2026: a silent one isn't probed at each connection."""

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
            module = await asyncio.to_thread(_load_sdk, "connection")
            opened = self._open[key] = module.Connection(endpoint, self.rules, endpoint.url in self._older)
            self._older.discard(endpoint.url)  # one that fails is probed again
            listed = await opened.refresh()
            if opened.handshake:
                self._older.add(endpoint.url)
            return opened, listed

    def alive(self, whose: Hashable, name: str) -> bool:
        """Whether a connection is open that a call can use."""
        return (connection := self._open.get((whose, name))) is not None and connection.alive

    async def begin_sign_in(self, whose: Hashable, browser: str, endpoint: McpEndpoint, redirect: str) -> str:
        """The address at which this person, in this browser, signs in to the server; raises `NetError`."""
        module = await asyncio.to_thread(_load_sdk, "sign_in")
        flow: SignInFlow = module.SignInFlow(whose, browser, endpoint, redirect, self.rules)
        address = await flow.address()
        self._flows[flow.state] = flow
        return address

    async def finish_sign_in(self, whose: Hashable, browser: str, answer: Mapping[str, str]) -> str:
        """Take the parameters that the browser brought back; returns the server's name. Raises `NetError`."""
        flow = self._flows.pop(answer.get("state", ""), None)
        if flow is None or (flow.whose, flow.browser) != (whose, browser):
            raise NetError("no_flow", "This sign-in isn't one that this browser began, or it is over; connect again.")
        await flow.finish(answer)
        await self.drop(whose, flow.endpoint.name)
        return flow.endpoint.name

    async def revoke(self, whose: Hashable, endpoint: McpEndpoint) -> None:
        """End a sign-in where it was made, if that can be reached, and the connection. Never raises."""
        await self.drop(whose, endpoint.name)
        await (await asyncio.to_thread(_load_sdk, "sign_in")).revoke(endpoint, self.rules)

    async def drop(self, whose: Hashable, name: str) -> None:
        """Close a connection, if it is open."""
        if connection := self._open.pop((whose, name), None):
            await connection.close()

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(each.close() for held in (self._open, self._flows) for each in held.values()))
        self._open.clear()
        self._flows.clear()


def _load_sdk(part: str) -> ModuleType:
    """Import the official client, which takes most of a second. Its log is off: it copies all that a server sends."""
    getLogger("mcp").setLevel(CRITICAL)
    fetch.load_client()
    return import_module(f"gateway.net.mcp.{part}")
