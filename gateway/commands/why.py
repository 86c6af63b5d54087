"""/why: how the last answer was made."""

import json
from collections.abc import Iterator

from gateway.commands import Command, CommandContext, CommandReply
from gateway.domain.principals import Role
from gateway.domain.text.texts import one_line
from gateway.domain.work.plans import PlanArguments
from gateway.store.delivery import outbox
from gateway.store.delivery.outbox import OutboxRow
from gateway.store.transcript import messages, tool_calls
from gateway.store.transcript.tool_calls import PlannedCall
from gateway.store.work import steps
from gateway.store.work.steps import StepRow

MAX_LINE = 1_000


async def run(ctx: CommandContext) -> CommandReply:
    """Report the waiting time, the models tried, tokens, cost, what was planned, and the delivery of each part."""
    answer = await messages.last_answer(ctx.tx, ctx.at.session_id)
    if answer is None or answer.task_id is None:
        return CommandReply("There is no answer in this session yet.")
    asked_at = await messages.asked_at(ctx.tx, answer.id)
    trace = await steps.of_task(ctx.tx, answer.task_id, asked_at)
    delivery = await outbox.of_message(ctx.tx, answer.id)
    lines = [f"Received {asked_at:%H:%M:%S}, answered after {(answer.created_at - asked_at).total_seconds():.1f} s"]
    lines += [line for step in trace for line in _step_lines(step, owner=ctx.role is Role.OWNER)]
    planned = await tool_calls.planned_calls(ctx.tx, answer.task_id, asked_at)
    lines += [line for call in planned for line in _planned(call)]
    lines += [_delivered(part) for part in delivery] or ["Shown where you read it: nothing had to be sent"]
    return CommandReply("\n".join(lines))


def _step_lines(step: StepRow, *, owner: bool) -> list[str]:
    """The lines of a step; only the owner sees costs and provider messages, which may mention the account."""
    tried = [f"{a.model} failed: {a.error}{f': {a.message}' if owner else ''}" for a in step.failed]
    if step.kind == "model":
        cost = f", ${step.cost_usd:.4f}" if owner else ""
        part = f" (${step.thinking_usd:.4f})" if owner else ""
        thinking = f", of which {step.tokens_thinking} thinking{part}" if step.tokens_thinking else ""
        took = f"{step.latency_ms} ms, {step.tokens_in} tokens in, {step.tokens_out} out{cost}{thinking}"
        return [*tried, f"{step.name}: {took}"]
    return [f"{step.name}: {step.latency_ms} ms"]


def _planned(call: PlannedCall) -> Iterator[str]:
    """Yield the steps that a call fills or asks about, with the role and source of each argument."""
    steps, roles = PlanArguments.model_validate_json(call.plan).steps, json.loads(call.result).get("roles", {})
    asked = json.loads(call.asked) if call.asked else {}
    for number, why in asked.get("because", {str(call.number): ""}).items():
        step = steps[int(number) - 1]
        told = ", without a question because all of it was planned" if call.unasked else ""
        if asked:
            told = f", asked as {asked['waiting_for_approval']}{f' because of {why}' if why else ' with the others'}"
        origins = step.origins(roles.get(step.tool, {}))
        yield one_line(f"{step.tool} filled step {number} of the plan{told}: {origins}", MAX_LINE)


def _delivered(part: OutboxRow) -> str:
    tries = f" after {part.attempts} tries" if part.attempts > 1 else ""
    platform = f" as {part.platform_id}" if part.platform_id else ""
    error = f": {part.error}" if part.error else ""
    return f"Part {part.part + 1}{' (a file)' if part.file_id else ''}: {part.state}{platform}{tries}{error}"


command = Command("why", "how the last answer was made: models, cost, delivery", run, tokens="any")
