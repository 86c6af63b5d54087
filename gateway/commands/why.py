"""/why: how the last answer came to be."""

from gateway.commands import Command, CommandContext, CommandReply
from gateway.store import messages, outbox, steps
from gateway.store.outbox import OutboxRow
from gateway.store.steps import StepRow


async def run(ctx: CommandContext) -> CommandReply:
    """Waiting time, models tried in order, tokens, cost, and the delivery of each part."""
    answer = await messages.last_answer(ctx.tx, ctx.at.session_id)
    if answer is None or answer.task_id is None:
        return CommandReply("There is no answer in this session yet.")
    asked_at = await messages.asked_at(ctx.tx, answer.id)
    trace = await steps.of_task(ctx.tx, answer.task_id, asked_at)
    delivery = await outbox.of_message(ctx.tx, answer.id)
    lines = [f"Received {asked_at:%H:%M:%S}, answered after {(answer.created_at - asked_at).total_seconds():.1f} s"]
    lines += [line for step in trace for line in _told(step)]
    lines += [_delivered(part) for part in delivery] or ["Shown where you read it: nothing had to be sent"]
    return CommandReply("\n".join(lines))


def _told(step: StepRow) -> list[str]:
    tried = [f"{attempt.model} failed: {attempt.error}: {attempt.message}" for attempt in step.failed]
    if step.kind == "model":
        tokens = f"{step.tokens_in} tokens in, {step.tokens_out} out"
        return [*tried, f"{step.name}: {step.latency_ms} ms, {tokens}, ${step.cost_usd:.4f}"]
    return [f"{step.name}: {step.latency_ms} ms"]


def _delivered(part: OutboxRow) -> str:
    tries = f" after {part.attempts} tries" if part.attempts > 1 else ""
    platform = f" as {part.platform_id}" if part.platform_id else ""
    error = f": {part.error}" if part.error else ""
    return f"Part {part.part + 1}: {part.state}{platform}{tries}{error}"


command = Command("why", "how the last answer came to be: models, cost, delivery", run)
