"""/link: share one conversation between several accounts of the same person."""

from gateway.commands import Command, CommandContext, CommandReply, decided, end_session
from gateway.domain.people.credentials import CodeRefusal, new_code, parse_code
from gateway.store.delivery import addresses
from gateway.store.people import accounts
from gateway.store.transcript import sessions

OFFER = (
    "Write /link {code} from your other account or page within ten minutes to continue this conversation there. "
    "If I don't know that account, I ask you here first."
)
JOINED = "This chat now continues the other one's conversation. /link off separates them again."


async def run(ctx: CommandContext) -> CommandReply:
    """Create a code for this session; with a code, join that session; `off` leaves the shared session.

    `join` and `deny` decide about another account that used a code of this person's.
    """
    if not ctx.at.private:
        return CommandReply("Linking only works in private chats; write /link there.")
    match ctx.argument.split(maxsplit=1):
        case []:
            code = new_code()
            await accounts.offer(ctx.tx, ctx.at, code)
            return CommandReply(OFFER.format(code=code))
        case ["off"]:
            return await _part(ctx)
        case ["join", code]:
            return decided(await accounts.join(ctx.tx, ctx.at.principal_id, code), "{} is now one of your accounts.")
        case ["deny", code]:
            return decided(await accounts.settle(ctx.tx, ctx.at.principal_id, code), "{} is not linked.")
        case _:
            return await _join(ctx, ctx.argument)


async def _join(ctx: CommandContext, typed: str) -> CommandReply:
    link = await accounts.redeem(ctx.tx, f"principal {ctx.at.principal_id}", parse_code(typed) or "")
    if isinstance(link, CodeRefusal):
        return CommandReply(link)
    if link.principal_id != ctx.at.principal_id:
        return CommandReply(CodeRefusal.ANOTHERS)
    other = await addresses.lock_joined(ctx.tx, link.address_id)
    if other.session_id == ctx.at.session_id:
        return CommandReply("These chats already share a conversation.")
    await sessions.lock(ctx.tx, other.session_id)
    ended = await end_session(ctx.tx, ctx.at.session_id)
    await addresses.move(ctx.tx, ctx.at.session_id, other.session_id)
    return CommandReply(f"{JOINED}{ended}", ended.cancelled, other.session_id)


async def _part(ctx: CommandContext) -> CommandReply:
    if not await addresses.shared(ctx.tx, ctx.at.session_id):
        return CommandReply("This chat already has its own conversation.")
    session = await sessions.start(ctx.tx, ctx.at.principal_id, ctx.label)
    await addresses.hand_over(ctx.tx, ctx.at.id, ctx.at.principal_id, session)
    return CommandReply(f"This chat has its own conversation again ({str(session)[:8]}).", successor=session)


command = Command("link", "continue this conversation on another account of yours; off: separate them", run)
