"""The configured MCP servers as a source of tools for one person; each is connected when it is first needed.

Servers that the gateway starts itself run in the jail, in a folder of their own, without the workspace.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import SecretStr

from gateway.agent.mcp import pinned_tools
from gateway.agent.mcp.calls import McpCalls, Save
from gateway.agent.mcp.elicitation import Consult
from gateway.agent.mcp.pinned_tools import PinnedTool, ToolState
from gateway.agent.tool_sources import Offer
from gateway.config.model import McpServer
from gateway.domain.conversation.tools import AnyTool
from gateway.domain.errors import required
from gateway.domain.ids import PrincipalId
from gateway.domain.json import json_or_text
from gateway.domain.principals import Label
from gateway.net.addresses import Rules
from gateway.net.errors import NetError
from gateway.net.mcp.connections import Connections
from gateway.net.mcp.server import STDIO, STDIO_WITH_NETWORK, McpEndpoint, SignIn, public_url
from gateway.net.proxy import destinations, start
from gateway.sandbox.command import Command, Limits, Tier
from gateway.sandbox.workshop import NoJail, Running, Workshop
from gateway.secrets.facts import Binding
from gateway.secrets.injection import Injected, Outgoing, SecretRefused, Usable, inject
from gateway.store.connection.pool import Database

if TYPE_CHECKING:
    from gateway.net.mcp.connection import Connection


class Credentials(Protocol):
    """The secrets of people, in a running gateway."""

    def finder(self, principal: PrincipalId) -> Callable[[str], Usable | None]:
        """A function that finds a secret by name for requests of this person's tools."""

    async def used(self, names: Collection[str], principal: PrincipalId, by: str = "") -> None:
        """Note in the audit trail that a request with these secrets is about to be sent."""

    async def keep(self, name: str, value: str, principal: PrincipalId, binding: Binding) -> None:
        """Store a person's own secret that no person typed, such as the tokens of a sign-in."""

    async def drop(self, name: str, principal: PrincipalId) -> None:
        """Remove a person's own secret, if there is one."""

    async def renewed(self, name: str, value: str, principal: PrincipalId) -> None:
        """Store a new value of a secret, with the same binding."""

    def hide(self, name: str, principal: PrincipalId, *values: str) -> None:
        """Mask values that were derived from this secret in texts, instead of the previous ones."""


def _secret_of(name: str) -> str:
    """The name of the secret that holds a person's sign-in at a server."""
    return f"MCP_{name.replace('-', '_')}_SIGN_IN"


LOCAL_LIMITS = Limits(seconds=30 * 86_400, cpu_seconds=3_600)
"""The limits of a local server, which runs as long as its connection; that ends when it is idle."""


@dataclass(frozen=True, slots=True)
class LocalServers:
    """Starts local servers; none of them can read `data`, the gateway's own folder."""

    workshop: Workshop
    data: Path
    rules: Callable[[], Rules]
    """The network rules, for servers that list hosts."""

    def endpoint(self, name: str, server: McpServer) -> McpEndpoint:
        """The endpoint of a configured server; raises `NetError`."""
        variables = {key: value.get_secret_value() for key, value in server.env.items()}
        if held := [key for key, value in variables.items() if "${secret:" in value]:
            reason = 'a server on this machine could show a bound secret to anybody; "$secret:NAME" gives it a value'
            raise NetError("no_credential", f"tools.mcp.{name}.env.{held[0]}: {reason} all the same")
        reads = tuple(self._readable(name, Path(path)) for path in server.reads)
        hosts = ",".join(map(str, destinations(server.hosts, anywhere=True)))
        parts = [server.command, *server.args], sorted(variables), reads
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        url = f"{STDIO_WITH_NETWORK}//{name}/{hosts}/{digest}" if hosts else f"{STDIO}//{name}/{digest}"
        return McpEndpoint(name, url, variables, partial(self._start, server, variables, reads))

    def _readable(self, name: str, path: Path) -> str:
        real, data = path.resolve(), self.data.resolve()
        if not path.is_absolute() or not real.exists():
            raise NetError("bad_path", f"tools.mcp.{name}.reads: there is no {path}; name it by its full path")
        if real in (data, *data.parents) or data in real.parents:
            raise NetError("bad_path", f"tools.mcp.{name}.reads: the gateway's own data is in {path}")
        return str(real)

    async def _start(self, server: McpServer, variables: Mapping[str, str], reads: tuple[str, ...]) -> Running:
        assert server.command is not None, "only called for servers with a command"
        try:
            await self.workshop.require_privacy()
            tier = await self.workshop.tier()
            with ExitStack() as temporary:
                folder = self.workshop.folder(temporary)
                words, scratch = (server.command, *server.args), folder if tier is Tier.LANDLOCK else ""
                jail = folder, tier, self.workshop.landlock
                command = Command(
                    words, *jail, environment=variables, reads=reads, scratch=scratch, limits=LOCAL_LIMITS
                )
                may_reach = server.hosts, self.rules
                running = await start(self.workshop, command, *may_reach, typed=True, apart=True, anywhere=True)
                running.closing.append(temporary.pop_all().close)
                return running
        except NoJail as error:
            raise NetError("no_jail", f"Servers can't be confined here, so it isn't started: {error}.") from error


ServerState = Literal["connected", "waiting", "failed", "sign_in", "off"]
"""`waiting`: not connected, because it is idle or was never used. `sign_in`: its person has to sign in."""
RETRY_SECONDS = 60.0
"""Seconds after a failure in which a server isn't asked for its tools again."""
_NEVER = -inf, "", ""


@dataclass
class McpServers:
    """A source of tools; `database` has their pins. Members get confirmed tools of servers that are for members."""

    principal: PrincipalId
    owner: bool
    config: Callable[[], Mapping[str, McpServer]]
    database: Database
    connections: Connections
    credentials: Credentials
    save: Save
    local: LocalServers
    consult: Consult
    offers: Sequence[Offer] = field(default=(), init=False)
    _looked: frozenset[str] = field(default=frozenset(), init=False)
    _failed: dict[str, tuple[float, str, str]] = field(default_factory=dict, init=False)
    """By server: when it failed last, the code of the error, and the error in our own words."""
    _read: tuple[Mapping[str, McpServer], Sequence[PinnedTool]] = field(default=({}, ()), init=False)

    @property
    def servers(self) -> Mapping[str, McpServer]:
        """The servers that this person may use."""
        return {name: each for name, each in self.config().items() if each.enabled and (self.owner or each.members)}

    @property
    def more(self) -> bool:
        """Whether there is a server whose tools aren't known yet."""
        known = {tool.definition.server for tool in self._read[1]}
        return self.owner and not (self._looked | known).issuperset(self.servers)

    async def refresh(self) -> None:
        """Read the stored tools of the servers."""
        servers = self.servers
        known = await self.database.read(pinned_tools.read) if servers else []
        if (servers, known) == self._read:
            return
        self._read = servers, known
        usable = {ToolState.ON: Label.OWNER} | ({ToolState.NEW: Label.UNTRUSTED} if self.owner else {})
        offered = [each for each in known if each.state in usable and each.definition.server in servers]
        self.offers = tuple(Offer(self._tool(each), usable[each.state]) for each in offered)

    async def discover(self) -> Sequence[str]:
        """Ask all servers for their tools, side by side."""
        problems = await asyncio.gather(*map(self._discovered, self.servers if self.owner else ()))
        await self.refresh()
        return [problem for problem in problems if problem]

    async def connect(self, name: str) -> "Connection":
        """An open connection to a server, whose tools are stored if they were listed anew; raises `NetError`."""
        connection, anew = await self.reach(name)
        if anew:
            await pinned_tools.record(self.database, name, connection.tools.values())
            self._looked |= {name}
        return connection

    async def reach(self, name: str) -> tuple["Connection", bool]:
        """An open connection, without storing tools, and whether they were listed anew; raises `NetError`."""
        try:
            reached = await self.connections.get(self.principal, await self._endpoint(name))
        except NetError as error:
            # A missing secret may be stored at any moment, so it is looked for again at once.
            failed_at = -inf if error.code == "no_credential" else monotonic()
            self._failed[name] = failed_at, error.code, "it refused" if error.foreign else str(error)
            raise
        self._failed.pop(name, None)
        return reached

    def state(self, name: str) -> tuple[ServerState, str]:
        """The state of a server and the last error; never in the server's own words."""
        if name not in self.servers:
            return "off", ""
        if self.connections.alive(self.principal, name):
            return "connected", ""
        _, code, problem = self._failed.get(name, _NEVER)
        if problem := self.lacks(name) or problem:
            return "sign_in" if code == "sign_in" else "failed", problem
        return "waiting", ""

    def lacks(self, name: str) -> str:
        """Why a server's credentials can't be sent; "" if they can, or it needs none."""
        try:
            if (server := self.servers.get(name)) and server.url:
                self._injected(name, server.url, server.headers)
        except SecretRefused as refusal:
            return str(refusal)
        return ""

    async def _discovered(self, name: str) -> str:
        """Ask a server for its tools; returns the error, never in the server's own words."""
        if monotonic() - self._failed.get(name, _NEVER)[0] >= RETRY_SECONDS:
            with suppress(NetError):
                await self.connect(name)
        problem = self._failed.get(name, _NEVER)[2]
        return f"{name}: {problem}" if problem else ""

    async def _endpoint(self, name: str) -> McpEndpoint:
        gone = NetError("no_server", f"The MCP server {name} is no longer configured, or not for this person.")
        server = required(self.servers.get(name), gone)
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
        sign_in, old = self._sign_in(name, server), server.type == "sse"
        return McpEndpoint(name, server.url, sent.request.headers, sign_in=sign_in, old_transport=old)

    async def begin_sign_in(self, name: str, browser: str, redirect: str) -> str:
        """The address at which this person signs in to a server, in this browser; raises `NetError`."""
        return await self.connections.begin_sign_in(self.principal, browser, await self._endpoint(name), redirect)

    async def finish_sign_in(self, browser: str, answer: Mapping[str, str]) -> str:
        """Take what their browser brought back; returns the server's name. Raises `NetError`."""
        name = await self.connections.finish_sign_in(self.principal, browser, answer)
        self._failed.pop(name, None)
        return name

    async def sign_out(self, name: str) -> None:
        """Revoke the person's tokens, if their server can be reached, and remove them; raises `NetError`."""
        await self.connections.revoke(self.principal, await self._endpoint(name))
        await self.credentials.drop(_secret_of(name), self.principal)

    def is_signed_in(self, name: str) -> bool:
        """Whether tokens of this person are stored for a server."""
        return self.credentials.finder(self.principal)(_secret_of(name)) is not None

    def _sign_in(self, name: str, server: McpServer) -> SignIn | None:
        """The person's sign-in, unless a header does it; its tokens are for this host only."""
        if server.url is None or "authorization" in map(str.lower, server.headers):
            return None
        secret, at = _secret_of(name), urlsplit(public_url(server.url))
        binding = Binding.of([f"{at.scheme}://{at.netloc}"], [f"mcp_{name}"], "header:Authorization")
        found = self.credentials.finder(self.principal)(secret)
        stored = found.value if found and found.binding == binding else ""

        async def save(text: str) -> None:
            await self.credentials.keep(secret, text, self.principal, binding)
            self._hide(secret, text)

        self._hide(secret, stored)
        return SignIn(stored, save, server.client_id, server.client_secret.get_secret_value())

    def _hide(self, secret: str, stored: str) -> None:
        match json_or_text(stored):
            case {"current_tokens": dict(tokens)}:
                hidden = [str(value) for key, value in tokens.items() if key in ("access_token", "refresh_token")]
                self.credentials.hide(secret, self.principal, *hidden)

    def _injected(self, name: str, url: str, headers: Mapping[str, SecretStr]) -> Injected:
        plain = {key: value.get_secret_value() for key, value in headers.items()}
        return inject(Outgoing("POST", public_url(url), plain), f"mcp_{name}", self.credentials.finder(self.principal))

    def _tool(self, pinned: PinnedTool) -> AnyTool:
        seconds = self.servers[pinned.definition.server].timeout.total_seconds()
        pin = partial(pinned_tools.confirm_prompt, self.database, self.principal)
        return McpCalls(pinned, self.connect, self.save, self.consult, pin, seconds).tool
