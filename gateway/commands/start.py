"""/start: Telegram sends it when somebody opens the bot, with a code if the link to the bot has one."""

from dataclasses import replace

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.people.credentials import parse_code
from gateway.domain.principals import Role
from gateway.store.people import pairings

GREETING = (
    "Hello! Write to me as you would to a person: ask a question, give me a task, send me a file. "
    "/new starts a new conversation."
)


async def run(ctx: CommandContext) -> CommandReply:
    """Greet and list the commands; run /link with a code.

    The code of an access request is only looked up: a stranger may have made the link that the owner opened.
    """
    code = parse_code(ctx.argument)
    if code is None or ctx.at.address.by_token:
        return CommandReply(f"{GREETING}\n\n{(await ctx.commands['help'].run(ctx)).text}")
    if ctx.role is Role.OWNER:
        for row in await pairings.open_requests(ctx.tx):
            if row.code == code:
                return CommandReply(f"{row} requests access. Answer: /pairing approve {code} or /pairing deny {code}.")
    return await ctx.commands["link"].run(replace(ctx, argument=code))


command = Command("start", "what I can do, and this list", run, tokens="any")
