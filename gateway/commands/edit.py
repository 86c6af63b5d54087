"""/edit: say a message of one's own otherwise, in a branch of the conversation."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.commands.retry import branch, own_message
from gateway.domain.marks import without_marks
from gateway.domain.principals import label_of

USAGE = "Write /edit and the new words; they replace your last message, in a branch."


async def run(ctx: CommandContext) -> CommandReply:
    """Never trusted more than the words before: those may have quoted somebody, and be typed again."""
    found, words = await own_message(ctx)
    if isinstance(found, CommandReply):
        return found
    if not words.strip():
        return CommandReply(USAGE)
    label = max(found.label, label_of(ctx.role, private=ctx.at.private))
    return await branch(ctx, found, without_marks(words), label)


command = Command("edit", "say my last message otherwise, in a branch", run)
