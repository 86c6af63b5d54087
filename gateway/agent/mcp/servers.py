"""The MCP servers of the configuration as a source of tools for one person. Nothing is connected before it's needed."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Literal

from pydantic import SecretStr

from gateway.agent.credentials import Credentials
from gateway.agent.mcp import pinning
from gateway.agent.mcp.calls import McpCalls, Save
from gateway.agent.mcp.local import LocalServers
from gateway.agent.mcp.pinning import PinnedTool, State
from gateway.agent.sources import Offer
from gateway.config.model import McpServer
from gateway.domain.conversation.tools import AnyTool
from gateway.domain.ids import PrincipalId
from gateway.net.errors import NetError
from gateway.net.mcp.connections import Connections
from gateway.net.mcp.server import McpEndpoint, ServerError, public_url
from gateway.secrets.injection import Injected, Outgoing, SecretRefused, inject
from gateway.store.connection.pool import Database

if TYPE_CHECKING:
    from gateway.net.mcp.connection import Connection

ServerState = Literal["connected", "waiting", "failed", "off"]
"""`waiting`: nobody has asked it for anything yet, or for some minutes."""
RETRY_SECONDS = 60.0
"""How long a server that could not be reached isn't asked for its tools again."""


@dataclass
class McpServers:
    """`database` is the one that knows pins. Members get confirmed tools only, of servers that are for members."""

    principal: PrincipalId
    owner: bool
    config: Callable[[], Mapping[str, McpServer]]
    database: Database
    connections: Connections
    credentials: Credentials
    save: Save
    local: LocalServers
    offers: Sequence[Offer] = field(default=(), init=False)
    _looked: frozenset[str] = field(default=frozenset(), init=False)
    _failed: dict[str, tuple[float, str]] = field(default_factory=dict, init=False)
    _read: tuple[Mapping[str, McpServer], Sequence[PinnedTool]] = field(default=({}, ()), init=False)

    @property
    def servers(self) -> Mapping[str, McpServer]:
        """Those that this person may use."""
        return {name: each for name, each in self.config().items() if each.enabled and (self.owner or each.members)}

    @property
    def more(self) -> bool:
        """Whether nothing is known of a server's tools yet."""
        known = {tool.definition.server for tool in self._read[1]}
        return self.owner and not (self._looked | known).issuperset(self.servers)

    async def refresh(self) -> None:
        """Read what is known of their tools."""
        servers, known = self.servers, list[PinnedTool]()
        if servers:
            async with self.database.connection() as conn:
                known = await pinning.read(conn)
        if (servers, known) == self._read:
            return
        self._read = servers, known
        usable = (State.ON, State.NEW) if self.owner else (State.ON,)
        offered = [each for each in known if each.state in usable and each.definition.server in servers]
        self.offers = tuple(Offer(self._tool(each), each.state is State.ON) for each in offered)

    async def discover(self) -> Sequence[str]:
        """Ask all servers for their tools, side by side."""
        problems = await asyncio.gather(*map(self._discovered, self.servers if self.owner else ()))
        await self.refresh()
        return [problem for problem in problems if problem]

    async def connect(self, name: str) -> "Connection":
        """A living connection to a server, with its tools as it describes them now; raises `NetError`."""
        connection, anew = await self.reach(name)
        if anew:
            await pinning.record(self.database, name, connection.tools.values())
            self._looked |= {name}
        return connection

    async def reach(self, name: str) -> tuple["Connection", bool]:
        """The same without noting what its tools are; and whether they were listed anew."""
        try:
            reached = await self.connections.get(self.principal, await self._endpoint(name))
        except NetError as error:
            problem = f"{name}: {'it refused' if isinstance(error, ServerError) else error}"
            self._failed[name] = monotonic(), problem
            raise
        self._failed.pop(name, None)
        return reached

    def state(self, name: str) -> tuple[ServerState, str]:
        """Whether it's connected, and what went wrong at the last try; never in the server's own words."""
        if name not in self.servers:
            return "off", ""
        if self.connections.alive(self.principal, name):
            return "connected", ""
        problem = self.lacks(name) or self._failed.get(name, (0.0, ""))[1].removeprefix(f"{name}: ")
        return ("failed", problem) if problem else ("waiting", "")

    def lacks(self, name: str) -> str:
        """Why its credentials can't be sent to it; "" if they can, or it needs none."""
        server = self.servers.get(name)
        if server is None or server.url is None:
            return ""
        try:
            self._injected(name, server.url, server.headers)
        except SecretRefused as refusal:
            return str(refusal)
        return ""

    async def _discovered(self, name: str) -> str:
        """What went wrong; never in the server's own words."""
        failed_at, problem = self._failed.get(name, (0.0, ""))
        if problem and monotonic() - failed_at < RETRY_SECONDS:
            return problem
        try:
            await self.connect(name)
        except NetError:
            return self._failed[name][1]
        return ""

    async def _endpoint(self, name: str) -> McpEndpoint:
        server = self.servers.get(name)
        if server is None:
            raise NetError("no_server", f"The MCP server {name} is no longer configured, or not for this person.")
        if server.url is None and server.command:
            return self.local.endpoint(name, server)
        if server.url is None:
            raise NetError("no_url", f"tools.mcp.{name} has neither url nor command")
        try:
            sent = self._injected(name, server.url, server.headers)
        except SecretRefused as refusal:
            raise NetError("no_credential", str(refusal)) from refusal
        if sent.used:
            await self.credentials.used(sent.used, self.principal)
        return McpEndpoint(name, server.url, sent.request.headers)

    def _injected(self, name: str, url: str, headers: Mapping[str, SecretStr]) -> Injected:
        plain = {key: value.get_secret_value() for key, value in headers.items()}
        return inject(Outgoing("POST", public_url(url), plain), f"mcp_{name}", self.credentials.finder(self.principal))

    def _tool(self, pinned: PinnedTool) -> AnyTool:
        seconds = self.servers[pinned.definition.server].timeout.total_seconds()
        return McpCalls(pinned, self.connect, self.save).tool(seconds)
