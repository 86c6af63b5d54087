"""/prompt SERVER NAME: have a prompt of an MCP server filled in, and its text followed as other people's."""

import json
import shlex
from uuid import uuid4

from gateway.agent.mcp import pinned_tools
from gateway.agent.mcp.pinned_tools import GET_PROMPT, ToolState
from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.conversation.inbound import Inbound, Sender
from gateway.domain.ids import EntryId
from gateway.store.transcript import unread

USAGE = "Write /prompt SERVER NAME, and name=value for each of its arguments; without NAME they are listed. {}"
NONE = "No server with prompts is known; confirm mcp_SERVER_get_prompt, which `supaclaw tools test` finds."
ASKS = "Call {} with {}, then do for me what its text asks, as far as I would want it."


async def run(ctx: CommandContext) -> CommandReply:
    """Ask the agent, in the person's name, to call the server's tool, which has them confirm the text."""
    tools = {each.definition.server: each for each in await pinned_tools.read(ctx.tx) if each.name.endswith(GET_PROMPT)}
    known = {name: each.name for name, each in tools.items() if each.state in (ToolState.ON, ToolState.NEW)}
    try:
        server, *words = shlex.split(ctx.argument)
    except ValueError:
        server, words = "", []
    given = [word.partition("=") for word in words[1:]]
    if server not in known or not all(found for _, found, _ in given):
        return CommandReply(USAGE.format(f"Servers: {', '.join(known)}." if known else NONE))
    arguments = {"name": words[0], "arguments": {name: value for name, _, value in given}} if words else {}
    text = ASKS.format(known[server], json.dumps(arguments, ensure_ascii=False))
    at, arrival = ctx.at, ctx.arrival
    when, own = (arrival.platform_id, arrival.platform_time), arrival.as_owner
    said = Inbound(at.address, Sender("", ""), text, *when, private=at.private, as_owner=own)
    whose = at.session_id, at.principal_id, at.id
    return CommandReply(asked=await unread.receive(ctx.tx, *whose, said, ctx.label, EntryId(uuid4()), arrival.id))


command = Command("prompt", "follow a prompt of an MCP SERVER: its NAME and name=value", run)
