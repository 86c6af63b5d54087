"""/new: end the session, start a fresh one."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.ids import SessionId
from gateway.domain.principals import label_of
from gateway.store import addresses, journals, messages, principals, sessions, tasks
from gateway.store.pool import Connection
from gateway.workspace.journal.summary import summarise


async def run(ctx: CommandContext) -> CommandReply:
    """Cancels a running turn and closes its messages; whoever shares the session moves along."""
    old = ctx.at.session_id
    task = await tasks.live_chat(ctx.tx, old)
    cancelled = await tasks.cancel(ctx.tx, task) if task else []
    closed = await messages.close(ctx.tx, old)
    await _close_journal(ctx.tx, old)
    await sessions.end(ctx.tx, old)
    principal = await principals.get(ctx.tx, ctx.at.principal_id)
    session = await sessions.start(ctx.tx, principal.id, label_of(principal.role, private=ctx.at.private))
    await addresses.move(ctx.tx, old, session)
    left = f" {closed} unanswered message{'s' * (closed != 1)} of the old one will not be answered." if closed else ""
    return CommandReply(f"New session started ({str(session)[:8]}).{left}", tuple(cancelled), session)


async def _close_journal(tx: Connection, session: SessionId) -> None:
    await journals.close(tx, session, summarise(*await journals.outline(tx, session)))


command = Command("new", "end this session and start a fresh one", run)
