"""/budget: model costs, what is left of the budgets, and raising a limit."""

from gateway.agent.limits import dollars, used_up
from gateway.commands import Command, CommandContext, CommandReply
from gateway.store.transcript import messages
from gateway.store.work import budgets, steps
from gateway.store.work.budgets import Account, Accounts, Period, Unpriced

WORDS = {Period.DAY: "Today", Period.MONTH: "This month"}


async def run(ctx: CommandContext) -> CommandReply:
    """Show the budgets of the day and the month (UTC); `more` grants an exhausted one its limit again."""
    if ctx.argument not in ("", "more"):
        return CommandReply("Write /budget to see what is left, /budget more to raise a limit that is used up.")
    now = ctx.clock.now()
    accounts = await budgets.accounts(ctx.tx, now, await budgets.settled_cost(ctx.tx, now))
    answer = _raised if ctx.argument else _overview
    return CommandReply(await answer(ctx, accounts, await budgets.unpriced(ctx.tx, now)))


async def _overview(ctx: CommandContext, accounts: Accounts, unpriced: Unpriced) -> str:
    lines = [f"{WORDS[period]}: {_account_line(account, _limit(ctx, period))}" for period, account in accounts.items()]
    day_tokens = ctx.services.limits().day_tokens
    if unpriced.tokens or day_tokens is not None:
        lines.append(f"Today, models without a price: {_tokens(unpriced, day_tokens)}")
    return "\n".join([f"One answer: {await _last(ctx)}", *lines])


async def _last(ctx: CommandContext) -> str:
    usd = ctx.services.limits().usd
    limit = "no limit" if usd is None else f"{dollars(usd)} allowed"
    answer = await messages.last_answer(ctx.tx, ctx.at.session_id)
    if answer is None or answer.task_id is None:
        return limit
    spent = await steps.spent_on(ctx.tx, answer.task_id, await messages.asked_at(ctx.tx, answer.id))
    return f"{limit}, the last one here cost {dollars(spent.cost_usd)}"


def _account_line(account: Account, limit: float | None) -> str:
    if limit is None:
        return f"{dollars(account.spent)} spent, no limit"
    allowed = limit + account.extra
    left = max(0.0, allowed - account.spent)
    raised = f" ({dollars(account.extra)} of it by /budget more)" if account.extra else ""
    return f"{dollars(account.spent)} spent, {dollars(allowed)} allowed{raised}, {dollars(left)} left"


def _tokens(unpriced: Unpriced, limit: int | None) -> str:
    models = f" ({', '.join(unpriced.models)})" if unpriced.models else ""
    allowed = "no limit" if limit is None else f"{limit + unpriced.extra:,} allowed"
    return f"{unpriced.tokens:,} tokens{models}, {allowed}"


async def _raised(ctx: CommandContext, accounts: Accounts, unpriced: Unpriced) -> str:
    """Raise each exhausted limit by its whole amount, counted from what was spent."""
    done = []
    for period, account in accounts.items():
        limit = _limit(ctx, period)
        if limit and used_up(account.spent, limit + account.extra):
            await budgets.raise_limit(ctx.tx, period, ctx.clock.now(), account.spent)
            done.append(f"{WORDS[period]}: another {dollars(limit)}, {dollars(account.spent + limit)} in all.")
    if (tokens := ctx.services.limits().day_tokens) and used_up(unpriced.tokens, tokens + unpriced.extra):
        await budgets.raise_limit(ctx.tx, "tokens", ctx.clock.now(), unpriced.tokens)
        done.append(f"Today: another {tokens:,} tokens of models without a price.")
    if not done:
        return f"No limit is used up, so there's nothing to raise.\n{await _overview(ctx, accounts, unpriced)}"
    return "\n".join([*done, "Send any unanswered message again."])


def _limit(ctx: CommandContext, period: Period) -> float | None:
    limits = ctx.services.limits()
    return limits.day_usd if period is Period.DAY else limits.month_usd


command = Command(
    "budget", "model costs and what is left; more: raise a used-up limit once", run, owner_only=True, tokens="as owner"
)
