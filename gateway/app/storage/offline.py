"""Stored secrets, MCP servers and tool files for commands that run without a gateway.

They ask the database only if a reference in config.json needs it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property

from gateway.agent.mcp.elicitation import Consult
from gateway.agent.mcp.servers import LocalServers, McpServers
from gateway.agent.skills.library import Skills
from gateway.agent.tool_files.confirmed import FORM, ToolFiles
from gateway.app.storage.database import has_database, open_database
from gateway.beside import afterwards
from gateway.config.environment import Environment
from gateway.config.load import Lookup, load, load_early, secrets_unavailable
from gateway.config.machine import SystemClock
from gateway.config.model import Config
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.flow.secrets.vault import Vault
from gateway.net.addresses import Rules
from gateway.net.mcp.connections import Connections
from gateway.sandbox.remote.client import open_workshop
from gateway.secrets.leaks import Leaks
from gateway.store.connection.pool import Database
from gateway.store.migrate import check_schema
from gateway.store.people import principals
from gateway.workspace.files.tree import Workspace


@dataclass(frozen=True)
class StoredSecrets:
    """A lookup that opens the database for the first name and then reads all secrets."""

    environment: Environment
    environ: Mapping[str, str] = field(repr=False)

    def __call__(self, name: str) -> str:
        """The secret's value; raises `ConfigError` for an unknown name, and the errors of opening the database."""
        return self._lookup(name)

    @cached_property
    def _lookup(self) -> Lookup:
        config = load_early(self.environment, self.environ)
        if not has_database(self.environment, config):
            return secrets_unavailable
        with ThreadPoolExecutor(1) as apart:  # a coroutine may call this
            return apart.submit(lambda: asyncio.run(self._read(config))).result()

    async def _read(self, config: Config) -> Lookup:
        async with open_database(self.environment, config) as database:
            stored = await stored_secrets(database, self.environment, self.environ)
            return stored.lookup if stored else secrets_unavailable


async def stored_secrets(
    database: Database, environment: Environment, environ: Mapping[str, str]
) -> LiveSecrets | None:
    """All current secrets; None before the first start."""
    owner = await database.read(principals.owner)
    if owner is None:
        return None
    stored = LiveSecrets(Vault(database, environment.data, environ), owner.id, environ)
    await stored.look()
    return stored


async def leak_guard(
    database: Database, environment: Environment, environ: Mapping[str, str]
) -> Callable[[str], str] | None:
    """A function that replaces stored secrets in a text; None if no secret can be opened."""
    leaks = Leaks()
    with suppress(OwnerMustAct):  # an older schema, which the following upgrade replaces
        await check_schema(database)
        stored = await Vault(database, environment.data, environ).opened()
        leaks.learn({each.value: f"${{secret:{each.row.facts.name}}}" for each in stored if each.value})
        return (lambda text: leaks.clean(text)[0]) if stored else None
    return None


def tool_files(database: Database, environment: Environment) -> ToolFiles:
    """The tool files of the owner's workspace; they can't fetch anything."""
    return ToolFiles(Skills(database, Workspace(environment.workspace), SystemClock(), form=FORM))


@asynccontextmanager
async def offline_servers(
    database: Database, environment: Environment, environ: Mapping[str, str], owner: PrincipalId
) -> AsyncIterator[McpServers]:
    """The owner's MCP servers; their connections are closed at the end."""
    config = load(environment.config, environ, StoredSecrets(environment, environ))
    files = tool_files(database, environment)
    secrets = await stored_secrets(database, environment, environ)
    assert secrets is not None, "there is an owner"
    await files.look()
    connections = Connections(lambda: Rules.of(config.net.private_allow))
    jail = open_workshop(environment.data / "scratch", environment.workshop)
    local = LocalServers(jail, environment.data, connections.rules)
    configured = {**files.servers, **config.tools.mcp}
    async with afterwards(connections.close, jail.close):
        yield McpServers(owner, True, lambda: configured, database, connections, secrets, _no_files, local, Consult())


async def _no_files(_path: str, _data: bytes) -> str:
    raise OwnerMustAct("nothing is called from here")
