"""/stop: cancel the running turn, its processes and its questions, or with `answer` the turn alone; its text stays."""

from gateway.commands import Command, CommandContext, CommandReply, closed_approvals
from gateway.domain.conversation.transcript import AssistantText
from gateway.store.transcript import messages
from gateway.store.trust import reviews
from gateway.store.work import tasks


async def run(ctx: CommandContext) -> CommandReply:
    """Cancel the running turn; its messages will not be answered. With `answer`, processes go on and questions stay."""
    task, whole = await tasks.live_chat(ctx.tx, ctx.at.session_id), ctx.argument != "answer"
    cancelled = [] if task is None else await tasks.cancel(ctx.tx, task)  # tasks are locked before questions
    closed = closed_approvals(await reviews.close(ctx.tx, ctx.at.session_id)) if whole else ""
    processes = ctx.services.processes.count(ctx.at.session_id) if whole else 0
    ended = f" {processes} process{'es' * (processes > 1)} ended." if processes else ""
    if task is None:
        return CommandReply(f"{'Stopped.' if ended else 'Nothing is running.'}{ended}{closed}", ends_processes=whole)
    await messages.close(ctx.tx, ctx.at.session_id)
    said = AssistantText(ctx.written, final=False) if ctx.written.strip() else None
    return CommandReply(f"Stopped.{ended}{closed}", tuple(cancelled), ends_processes=whole, unfinished=said)


command = Command("stop", "stop the current answer", run, tokens="any")
