"""/secrets: list and delete your own keys and passwords by name; their values are never shown."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.text.texts import first_of
from gateway.secrets.facts import Facts
from gateway.store.trust import secrets

PRIVATE = "Write /secrets yourself, in your private chat with me."
NONE = "You have stored no secrets. /secret NAME sends you a form for one."
USAGE = "/secrets lists yours, /secrets rm NAME deletes one."
MOST = 50


async def run(ctx: CommandContext) -> CommandReply:
    """List or delete them in a person's private chat; forwarded messages and tokens can't."""
    if not ctx.at.private or not ctx.arrival.sender:
        return CommandReply(PRIVATE)
    match ctx.argument.split():
        case []:
            return CommandReply(await _listed(ctx))
        case ["rm", name]:
            return CommandReply(await _removed(ctx, name))
    return CommandReply(USAGE)


async def _listed(ctx: CommandContext) -> str:
    facts = [row.facts for row in await secrets.list_all(ctx.tx)]
    own = [_line(each) for each in facts if each.principal == ctx.at.principal_id and not each.shared]
    return "\n".join(["Your secrets:", *first_of(own, MOST), USAGE]) if own else NONE


def _line(facts: Facts) -> str:
    bound = facts.binding
    used = f"sent to {', '.join(bound.hosts)} by {', '.join(bound.tools)}" if bound.hosts else "not sent anywhere yet"
    return f"- {facts.name}: {used}"


async def _removed(ctx: CommandContext, name: str) -> str:
    if await secrets.remove(ctx.tx, ctx.at.principal_id, name, shared=False):
        return f"{name[:64]} is deleted."
    return f"You have no secret of that name. {USAGE}"


command = Command("secrets", "list or delete the keys and passwords that you gave me", run)
