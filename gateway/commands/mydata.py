"""/mydata: a member's own data, to take along or to have erased."""

from gateway.agent.work.approvals import speaker
from gateway.commands import Command, CommandContext, CommandReply, asking
from gateway.domain.conversation.inbound import OWN_CHANNELS
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.principals import Label, Role
from gateway.store.trust.reviews import ERASE_MINE, EXPORT_MINE, ReviewQuestion

USAGE = (
    "Write /mydata export for a file with your conversations and memories, or /mydata erase to have all that is yours "
    "erased here. You are asked before either happens."
)
OWNER = "You have `supaclaw export DIR` for all, and `supaclaw memories forget NUMBER --erase` for what was said."
PRIVATE = "Write /mydata yourself, in your private chat with me."
ASKED = {
    "export": (EXPORT_MINE, "A file with all your conversations and memories is sent to this chat."),
    "erase": (
        ERASE_MINE,
        "The owner is asked to erase all that is yours here: conversations, memories, files, reminders, secrets. It "
        "needs the gateway stopped for some minutes, so until the owner does it nothing is gone.\n"
        "What stays: your access and account, sums of costs, who approved what and when, and what you said in groups. "
        "What others have isn't erased: your messenger, the models' providers, backups until they are deleted.",
    ),
}


async def run(ctx: CommandContext) -> CommandReply:
    """Ask the member for a yes; the call that it approves does the rest."""
    if ctx.role is Role.OWNER:
        return CommandReply(OWNER)
    person = await speaker(ctx.tx, ctx.at, ctx.arrival) if ctx.at.private else None
    if person is None or ctx.at.channel in OWN_CHANNELS:
        return CommandReply(PRIVATE)
    if ctx.argument not in ASKED:
        return CommandReply(USAGE)
    tool, preview = ASKED[ctx.argument]
    question = ReviewQuestion(person, person, tool, {}, preview, Label.KNOWN, act=ToolClass.IRREVERSIBLE)
    return await asking(ctx, question)


command = Command("mydata", "export: a file with all that is yours here; erase: have it erased", run)
