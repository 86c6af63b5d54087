"""/web: a sign-in link to the page, for a phone without a terminal."""

import structlog

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.conversation.inbound import OWN_CHANNELS

SENT = "Your sign-in link. It works once, for ten minutes. Don't pass it on: anyone who opens it is signed in as you."
NO_ADDRESS = (
    "The page has no public address, so a link to it works on the gateway's machine only: run `supaclaw web` there. "
    "For your phone, put a reverse proxy with https in front, set web.public_url to its address, such as "
    '"https://claw.example.org", and restart the gateway; docs/deploy.md shows how.'
)

log = structlog.get_logger(__name__)


async def run(ctx: CommandContext) -> CommandReply:
    """Create a link for the owner's private chat on a messenger; forwarded messages and tokens get none."""
    if not ctx.at.private or not ctx.arrival.sender:
        return CommandReply("Write /web yourself, in your private chat with me.")
    if ctx.at.channel in OWN_CHANNELS:
        return CommandReply("Write /web in a messenger to get a link there; in a terminal, run `supaclaw web`.")
    link = ctx.services.sign_in_link()
    if link is None:
        return CommandReply(NO_ADDRESS)
    log.info("web.link_sent", channel=ctx.at.channel)
    return CommandReply(SENT, secret=link)


command = Command("web", "a sign-in link to the web page, sent to this private chat", run, owner_only=True)
