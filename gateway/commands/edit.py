"""/edit: change one of your messages, in a branch of the conversation."""

from gateway.agent.conversation.branches import NotBranched, branch, own_message
from gateway.commands import Command, CommandContext, CommandReply, numbered
from gateway.domain.text.marks import without_marks

USAGE = "Write /edit and the new words; they replace your last message, in a branch."


async def run(ctx: CommandContext) -> CommandReply:
    """Branch before the message, with new words. Marks of quoted text are removed from them."""
    id, words = numbered(ctx.argument)
    row = await own_message(ctx.tx, ctx.at, id)
    if not words.strip():
        return CommandReply(USAGE)
    made, asked = await branch(ctx.tx, ctx.at, ctx.arrival, row, without_marks(words), ctx.label)
    return CommandReply(successor=made, asked=asked)


command = Command("edit", "change my last message, in a branch", run, refusals=(NotBranched,))
