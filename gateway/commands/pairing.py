"""/pairing: access requests, and the owner's decisions."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.codes import Refusal
from gateway.store.people import pairings
from gateway.store.people.pairings import PairingRow

USAGE = "Write /pairing to see who asks, /pairing approve CODE to let them in, /pairing deny CODE or NUMBER to not."


async def run(ctx: CommandContext) -> CommandReply:
    """List open requests and approved people; `approve` takes a code, `deny` a code or a number of the list."""
    action, _, which = ctx.argument.partition(" ")
    match action:
        case "" | "list" if not which:
            return CommandReply(await _shown(ctx))
        case "approve" if which:
            return _settled(await pairings.approve(ctx.tx, which), "{} is let in.")
        case "deny" if which:
            return _settled(await pairings.deny(ctx.tx, which), "{} is not let in.")
        case _:
            return CommandReply(USAGE)


def _settled(outcome: PairingRow | Refusal, words: str) -> CommandReply:
    if isinstance(outcome, Refusal):
        return CommandReply(outcome)
    return CommandReply(words.format(outcome), admission=True)


async def _shown(ctx: CommandContext) -> str:
    asking = [f"{row.id}: {row} asks, code {row.code}" for row in await pairings.open_requests(ctx.tx)]
    inside = [f"{row.id}: {row} is let in" for row in await pairings.admitted(ctx.tx)]
    return "\n".join([*(asking or ["Nobody asks to be let in."]), *inside, "", USAGE])


command = Command("pairing", "who asks to be let in; approve CODE, deny CODE or NUMBER", run, owner_only=True)
