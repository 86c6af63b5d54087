"""/pairing: access requests, and the owner's decisions."""

from gateway.commands import Command, CommandContext, CommandReply, decided
from gateway.store.people import pairings

USAGE = (
    "Write /pairing to list access requests, /pairing approve CODE to allow one, "
    "/pairing deny CODE or NUMBER to refuse it."
)


async def run(ctx: CommandContext) -> CommandReply:
    """List open requests and approved people; `approve` takes a code, `deny` a code or a number of the list."""
    action, _, which = ctx.argument.partition(" ")
    match action:
        case "" | "list" if not which:
            return CommandReply(await _shown(ctx))
        case "approve" if which:
            return decided(await pairings.approve(ctx.tx, which), "{} now has access.")
        case "deny" if which:
            return decided(await pairings.deny(ctx.tx, which), "{} has no access.")
        case _:
            return CommandReply(USAGE)


async def _shown(ctx: CommandContext) -> str:
    requests = [f"{row.id}: {row} requests access, code {row.code}" for row in await pairings.open_requests(ctx.tx)]
    admitted = [f"{row.id}: {row} has access" for row in await pairings.admitted(ctx.tx)]
    return "\n".join([*(requests or ["No access requests."]), *admitted, "", USAGE])


command = Command("pairing", "access requests; approve CODE, deny CODE or NUMBER", run, owner_only=True)
