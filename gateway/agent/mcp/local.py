"""MCP servers that the gateway starts itself: in the jail, in a folder of their own, without the workspace."""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gateway.config.model import McpServer
from gateway.net.addresses import Rules
from gateway.net.errors import NetError
from gateway.net.mcp.server import STDIO, STDIO_WITH_NETWORK, McpEndpoint
from gateway.net.proxy import destinations, start
from gateway.sandbox.command import Command, Limits, Tier
from gateway.sandbox.workshop import NoJail, Running, Workshop

LIMITS = Limits(seconds=30 * 86_400, cpu_seconds=3_600)
"""Of one that lives as long as its connection, which ends when nobody calls."""


@dataclass(frozen=True, slots=True)
class LocalServers:
    """Starts them. `data` is the gateway's own folder, which none of them reads."""

    workshop: Workshop
    data: Path
    rules: Callable[[], Rules] = Rules
    """Of the net, for those that list hosts."""

    def endpoint(self, name: str, server: McpServer) -> McpEndpoint:
        """One of the configuration; raises `NetError`."""
        variables = {key: value.get_secret_value() for key, value in server.env.items()}
        if held := [key for key, value in variables.items() if "${secret:" in value]:
            reason = f"{held[0]}: a server on this machine could show a bound secret to anybody"
            raise NetError(
                "no_credential", f'tools.mcp.{name}.env.{reason}; "$secret:NAME" gives it a value all the same'
            )
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
        try:
            await self.workshop.require_privacy()
            return await self._started(server, variables, reads)
        except NoJail as error:
            raise NetError("no_jail", f"Servers can't be confined here, so it isn't started: {error}.") from error

    async def _started(self, server: McpServer, variables: Mapping[str, str], reads: tuple[str, ...]) -> Running:
        assert server.command is not None, "it was asked for where there is one"
        tier = await self.workshop.tier()
        with ExitStack() as temporary:
            folder = self.workshop.folder(temporary)
            command = Command(
                (server.command, *server.args),
                folder,
                tier,
                self.workshop.landlock,
                environment=variables,
                reads=reads,
                scratch=folder if tier is Tier.LANDLOCK else "",
                limits=LIMITS,
            )
            running = await start(
                self.workshop, command, server.hosts, self.rules, typed=True, apart=True, anywhere=True
            )
            running.closing.append(temporary.pop_all().close)
        return running
