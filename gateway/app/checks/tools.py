"""Checks of MCP servers and tool files: can they be reached, are credentials missing, does anything await approval?"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from gateway.agent.mcp import pinned_tools
from gateway.agent.mcp.pinned_tools import ToolState
from gateway.agent.mcp.servers import McpServers
from gateway.agent.skills.library import SkillState as FileState
from gateway.agent.tool_files.calls import missing_credential
from gateway.agent.tool_files.confirmed import ToolFiles
from gateway.app.checks.context import CheckContext, ok, warn
from gateway.app.checks.secrets import database_state
from gateway.app.storage.database import open_database
from gateway.app.storage.offline import offline_servers, tool_files
from gateway.config.load import load_early
from gateway.domain.errors import SupaclawError
from gateway.domain.health import Finding
from gateway.net.errors import NetError
from gateway.net.mcp.server import ToolDefinition
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.workspace.tool_files.tool_file import ToolFile

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


def check_tools(context: CheckContext) -> Iterator[Finding]:
    """Check servers and files; connects to the servers only with `--live`. Yields nothing without either."""
    if database_state(context.environment, context.environ) == "runs":
        try:
            yield from asyncio.run(_look(context))
        except SupaclawError:
            yield warn("not looked at", "see the check of the database")


async def _look(context: CheckContext) -> list[Finding]:
    environment, environ = context.environment, context.environ
    async with open_database(environment, load_early(environment, environ)) as database:
        owner = await database.read(principals.owner)
        if owner is None:
            return []
        async with offline_servers(database, environment, environ, owner.id) as servers:
            listed, found = list[ToolDefinition](), list[Finding]()
            for name in servers.servers:
                found.append(await _server(servers, name, listed if context.live else None))
            found += await _waiting(database, servers, listed) if servers.servers else []
            return [*found, *[each async for each in _files(tool_files(database, environment), servers)]]


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
