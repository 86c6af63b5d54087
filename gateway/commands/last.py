"""/last: repeat the last answer."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.store.transcript import messages


async def run(ctx: CommandContext) -> CommandReply:
    """Return the latest stored answer of this session."""
    answer = await messages.last_answer(ctx.tx, ctx.at.session_id)
    return CommandReply(answer.text if answer else "There is no answer in this session yet.")


command = Command("last", "show the last answer again", run, tokens="any")
