"""/pairing: access requests, and the owner's decisions."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.people.credentials import CodeRefusal
from gateway.store.people import pairings
from gateway.store.people.pairings import PairingRow

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
            return _settled(await pairings.approve(ctx.tx, which), "{} now has access.")
        case "deny" if which:
            return _settled(await pairings.deny(ctx.tx, which), "{} has no access.")
        case _:
            return CommandReply(USAGE)


def _settled(outcome: PairingRow | CodeRefusal, words: str) -> CommandReply:
    if isinstance(outcome, CodeRefusal):
        return CommandReply(outcome)
    return CommandReply(words.format(outcome), admission=True)


async def _shown(ctx: CommandContext) -> str:
    asking = [f"{row.id}: {row} requests access, code {row.code}" for row in await pairings.open_requests(ctx.tx)]
    inside = [f"{row.id}: {row} has access" for row in await pairings.admitted(ctx.tx)]
    return "\n".join([*(asking or ["No access requests."]), *inside, "", USAGE])


command = Command("pairing", "access requests; approve CODE, deny CODE or NUMBER", run, owner_only=True)
