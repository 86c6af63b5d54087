"""/mydata: a member's own data, to take along or to have erased."""

from gateway.agent.work.approvals import speaker
from gateway.commands import Command, CommandContext, CommandReply, asking
from gateway.domain.conversation.inbound import OWN_CHANNELS
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.principals import Label, Role
from gateway.store.trust.reviews import ERASE_MINE, EXPORT_MINE, ReviewQuestion

USAGE = "Write /mydata export for a file with all that is yours here, or /mydata erase to have it erased. I ask first."
OWNER = "You have `supaclaw export DIR` for all, and `supaclaw memories forget NUMBER --erase` for what was said."
PRIVATE = "Write /mydata yourself, in your private chat with me."
ERASE = """\
The owner is asked to erase your conversations, memories, files, reminders and secrets. It needs the gateway stopped:
until the owner does it nothing is gone. Your access, sums of costs, who approved what and when, and what you said in
groups stay. Messengers, models' providers and backups keep what they have."""
ASKED = {
    "export": (EXPORT_MINE, "A file with all your conversations and memories is sent to this chat."),
    "erase": (ERASE_MINE, ERASE),
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
    return await asking(ctx, ReviewQuestion(person, person, tool, {}, preview, Label.KNOWN, act=ToolClass.IRREVERSIBLE))


command = Command("mydata", "export: a file with all that is yours here; erase: have it erased", run)
