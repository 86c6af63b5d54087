"""The owner's MCP servers and tool files for commands and checks, apart from a gateway that runs."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gateway.agent.mcp.servers import LocalServers, McpServers
from gateway.agent.skills.library import Skills
from gateway.agent.tool_files.confirmed import FORM, ToolFiles
from gateway.app.resolving import StoredSecrets, look
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.net.addresses import Rules
from gateway.net.mcp.connections import Connections
from gateway.sandbox.remote.client import open_workshop
from gateway.store.connection.pool import Database
from gateway.workspace.files.tree import Workspace


def tool_files(database: Database, environment: Environment) -> ToolFiles:
    """Those of the owner's workspace; none of them can fetch anything."""
    return ToolFiles(Skills(database, Workspace(environment.workspace), SystemClock(), form=FORM))


@asynccontextmanager
async def servers_apart(
    database: Database, environment: Environment, environ: Mapping[str, str], owner: PrincipalId
) -> AsyncIterator[McpServers]:
    """With connections of their own, which end with it."""
    config = load(environment.config, environ, StoredSecrets(environment, environ))
    files = tool_files(database, environment)
    secrets = await look(database, environment, environ)
    assert secrets is not None, "there is an owner"
    await files.look()
    connections = Connections(lambda: Rules.of(config.net.private_allow))
    jail = open_workshop(environment.data / "scratch", environment.workshop)
    local = LocalServers(jail, environment.data, connections.rules)
    configured = {**files.servers, **config.tools.mcp}
    try:
        yield McpServers(owner, True, lambda: configured, database, connections, secrets, _no_files, local)
    finally:
        await connections.close()
        await jail.close()


async def _no_files(_path: str, _data: bytes) -> str:
    raise OwnerMustAct("nothing is called from here")
