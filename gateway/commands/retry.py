"""/retry: answer one of your messages again, in a branch of the conversation."""

from gateway.agent.conversation.branches import NotBranched, branch, own_message
from gateway.commands import Command, CommandContext, CommandReply, numbered
from gateway.domain.principals import Role


async def run(ctx: CommandContext) -> CommandReply:
    """Branch before the message, with the same words; a model that is named is tried first."""
    id, model = numbered(ctx.argument)
    if model and ctx.role is not Role.OWNER:
        return CommandReply("Only the owner can choose the model; /retry alone asks the same one again.")
    if model and model not in ctx.services.models().chain:
        return CommandReply("That model isn't configured; /model lists those that are.")
    row = await own_message(ctx.tx, ctx.at, id)
    made, asked = await branch(ctx.tx, ctx.at, ctx.arrival, row, row.text, ctx.label, model or None)
    return CommandReply(successor=made, asked=asked)


command = Command("retry", "answer my last message again, in a branch", run, refusals=(NotBranched,))
