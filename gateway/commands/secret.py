"""/secret NAME: a form for a credential or a file's password of your own, which is never written into a chat."""

import re

import structlog

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.conversation.inbound import OWN_CHANNELS
from gateway.secrets.facts import NAME
from gateway.store.files import files

SENT = (
    "Open this form and type the value of {} there. It works once, for ten minutes. The value is stored encrypted "
    "and never shown again, not even to the agent."
)
OPENS = (
    "Open this form and type the password of {} there. It works once, for ten minutes. The password opens the file "
    "once, and is stored nowhere."
)
USAGE = (
    "Write /secret NAME, such as /secret WEATHER_KEY, or /secret FILE for the password of a file that you sent. "
    "Never write the value itself here: I send you a form for it."
)
PRIVATE = "Write /secret NAME yourself, in your private chat with me."
HERE = "Store secrets on the page (Secrets) or by `supaclaw secrets set NAME`; unlock files there (Files)."
NO_ADDRESS = (
    "The page has no public address, so I can't send you a form. Its owner sets web.public_url to an https address, "
    "or stores the value with `supaclaw secrets set NAME` on the gateway's machine. Send a file without its password."
)

log = structlog.get_logger(__name__)


async def run(ctx: CommandContext) -> CommandReply:
    """Create a link for a person's private chat on a messenger; forwarded messages and tokens get none."""
    if not ctx.at.private or not ctx.arrival.sender:
        return CommandReply(PRIVATE)
    locked = await files.locked_named(ctx.tx, ctx.at.principal_id, ctx.argument)
    if locked is None and not re.fullmatch(NAME, ctx.argument):
        return CommandReply(USAGE)
    if ctx.at.channel in OWN_CHANNELS:
        return CommandReply(HERE)
    link = ctx.services.secret_link(ctx.at.principal_id, locked.path if locked else ctx.argument)
    if link is None:
        return CommandReply(NO_ADDRESS)
    log.info("secrets.link_sent", channel=ctx.at.channel, name="a file" if locked else ctx.argument)
    return CommandReply((OPENS if locked else SENT).format(ctx.argument), secret=link)


command = Command("secret", "give me a key or password through a form, never in a message", run)
