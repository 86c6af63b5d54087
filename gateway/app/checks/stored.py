"""Checks of what the database holds, while it runs: secrets and their key, MCP servers and tool files."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Literal

from gateway.agent.mcp import pinned_tools
from gateway.agent.mcp.pinned_tools import ToolState
from gateway.agent.mcp.servers import McpServers
from gateway.agent.skills.library import SkillState as FileState
from gateway.agent.tool_files.calls import missing_credential
from gateway.agent.tool_files.confirmed import ToolFiles
from gateway.app.checks.context import CheckContext, fail, ok, warn
from gateway.app.storage.database import has_database, open_database
from gateway.app.storage.offline import StoredSecrets, offline_servers, stored_secrets, tool_files
from gateway.config.data.keys import has_master_key, read_keyring
from gateway.config.environment import Environment
from gateway.config.load import Lookup, keep_reference, load_early
from gateway.domain.errors import SupaclawError
from gateway.domain.health import Finding
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.net.errors import NetError
from gateway.net.mcp.server import ToolDefinition
from gateway.store.connection.pool import Database
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.people import principals
from gateway.workspace.tool_files.tool_file import ToolFile

_KEEP = "`supaclaw secrets confirm` shows the recovery key; without it, no backup can restore the secrets"
_HALF = "`supaclaw secrets rotate --master` goes on with it"


def lookup_if_running(environment: Environment, environ: Mapping[str, str]) -> Lookup:
    """A lookup of secrets in a running database; never starts one."""
    return StoredSecrets(environment, environ) if database_state(environment, environ) != "stopped" else keep_reference


def check_secrets(context: CheckContext) -> Iterator[Finding]:
    """Check the stored secrets and their key. Yields nothing before the first start."""
    environment, environ = context.environment, context.environ
    if database_state(environment, environ) == "stopped" and has_master_key(environment.data, environ):
        yield ok("not looked at: the database is not running")
    yield from _in_database(context, _look_at_secrets)


def check_tools(context: CheckContext) -> Iterator[Finding]:
    """Check servers and files; connects to the servers only with `--live`. Yields nothing without either."""
    yield from _in_database(context, _look_at_tools)


def _in_database(
    context: CheckContext, look: Callable[[CheckContext, Database], Awaitable[list[Finding]]]
) -> Iterator[Finding]:
    """Yield the findings of a look into a running database, which the check of the database has judged."""
    environment, environ = context.environment, context.environ

    async def opened() -> list[Finding]:
        async with open_database(environment, load_early(environment, environ)) as database:
            return await look(context, database)

    if database_state(environment, environ) == "runs":
        try:
            yield from asyncio.run(opened())
        except SupaclawError:
            yield warn("not looked at", "see the check of the database")


async def _look_at_secrets(context: CheckContext, database: Database) -> list[Finding]:
    secrets = await stored_secrets(database, context.environment, context.environ)
    if secrets is None:
        return []
    found = [*_findings_of(secrets)]
    keys = read_keyring(context.environment.data, context.environ).keys
    if secrets.stored and keys and not await secrets.key_kept():
        found.append(warn("the recovery key isn't confirmed as kept elsewhere", _KEEP))
    if len(keys) > 1:
        found.append(warn("a change of the master key was interrupted", _HALF))
    return found


def _findings_of(secrets: LiveSecrets) -> Iterator[Finding]:
    for problem in sorted({each.problem for each in secrets.stored} - {""}):
        yield fail(*problem.split("; ", 1))
    for each in secrets.stored:
        if cover := secrets.hidden_by(each.row.facts):
            text = f"the shared secret {each.row.facts.name} is hidden by {cover}"
            yield warn(text, "remove one of the two, unless you mean it")
    yield ok(f"{len(secrets.stored)} stored")


def database_state(environment: Environment, environ: Mapping[str, str]) -> Literal["none", "stopped", "runs"]:
    """The state of the database for checks; "none" also if config.json is invalid."""
    try:
        config = load_early(environment, environ)
    except SupaclawError:
        return "none"
    if not has_database(environment, config):
        return "none"
    return "runs" if config.database.url or EmbeddedPostgres(environment.data).is_running else "stopped"


_REVIEW = "look at them under Tools & skills on the page, or with `supaclaw tools list`"
_WAITING = {
    ToolState.NEW: "new: each call of it asks you",
    ToolState.CHANGED: "changed, and off until you confirm them again",
}
_OFF = {
    FileState.BROKEN: "is not valid",
    FileState.CHANGED: "has changed, and is off",
    FileState.NEW: "is new, and off",
}


async def _look_at_tools(context: CheckContext, database: Database) -> list[Finding]:
    owner = await database.read(principals.owner)
    if owner is None:
        return []
    async with offline_servers(database, context.environment, context.environ, owner.id) as servers:
        listed = list[ToolDefinition]()
        found = [await _server(servers, name, listed if context.live else None) for name in servers.servers]
        found += await _waiting(database, servers, listed) if servers.servers else []
        return [*found, *[each async for each in _files(tool_files(database, context.environment), servers)]]


async def _server(servers: McpServers, name: str, listed: list[ToolDefinition] | None) -> Finding:
    """Check one server. If `listed` is a list, connect to the server and add its tools to the list."""
    problem, offers = servers.lacks(name), ""
    try:
        if listed is not None and not problem:
            tools = (await servers.reach(name))[0].tools
            listed += tools.values()
            offers = f" offers {len(tools)} tools"
    except NetError as error:
        problem = str(error)
    if problem:
        text, _, fix = problem.partition("; ")
        return warn(f"the MCP server {name}: {text}", fix or f"check tools.mcp.{name}")
    return ok(f"the MCP server {name}{offers}")


async def _waiting(database: Database, servers: McpServers, listed: Sequence[ToolDefinition]) -> list[Finding]:
    async with database.connection() as conn:
        known = {tool.name: tool for tool in await pinned_tools.read(conn) if tool.definition.server in servers.servers}
    states = {name: tool.state for name, tool in known.items()}
    for each in listed:
        tool = known.get(each.tool_name)
        if tool is None:
            states[each.tool_name] = ToolState.NEW
        elif tool.state is ToolState.ON and tool.definition.sha256 != each.sha256:
            states[tool.name] = ToolState.CHANGED
    found = list[Finding]()
    for state, why in _WAITING.items():
        if names := sorted(name for name, its in states.items() if its is state):
            found.append(warn(f"{', '.join(names[:5])}{' …' * (len(names) > 5)}: {why}", _REVIEW))
    return found


async def _files(files: ToolFiles, servers: McpServers) -> AsyncIterator[Finding]:
    find = servers.credentials.finder(servers.principal)
    for each in await files.library.list_all():
        tool, review = each.look.skill, f"`supaclaw tool-files show {each.name}`"
        if each.state in _OFF:
            yield warn(f"the tool file {each.name} {_OFF[each.state]}", each.look.problem or review)
        elif isinstance(tool, ToolFile) and each.state is FileState.ON and (command := missing_credential(tool, find)):
            yield warn(f"the tool file {each.name} lacks its credential", f"`{command}`")
        elif each.state is FileState.ON:
            yield ok(f"the tool file {each.name}")
