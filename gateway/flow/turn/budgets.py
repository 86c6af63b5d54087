"""Budgets: the highest cost of each model call is reserved before it; with a budget used up, no model is called and the
owner is asked for more."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from gateway.agent.limits import TREE_USD, Limits, Stop, dollars, used_up
from gateway.domain.conversation.model import Highest, ModelEvent, Prompt
from gateway.domain.errors import SupaclawError
from gateway.domain.principals import Role
from gateway.domain.time import Clock
from gateway.domain.work.tasks import Claim
from gateway.flow.turn.loop import SizedModel
from gateway.store.connection.pool import Connection, Database
from gateway.store.work import budgets
from gateway.store.work.budgets import BUSY, DAY_TOKENS, Account, Accounts, Period, SharedLimits, Unpriced

PERIOD_WORDS = {Period.DAY: ("Today's", "today"), Period.MONTH: ("This month's", "this month")}
POLL_SECONDS = 0.5
"""Seconds between two tries to reserve."""


class OutOfBudget(SupaclawError):
    """A budget is used up, with a text for the person. `first`: no model was called in this run before."""

    def __init__(self, stop: Stop, *, first: bool) -> None:
        super().__init__(stop.text)
        self.stop = stop
        self.first = first


class SharedBudgets:
    """The budgets of all runs together, counted in Postgres, so that no two runs spend the same money."""

    def __init__(self, database: Database, limits: Callable[[], Limits], clock: Clock) -> None:
        self._database = database
        self._limits = limits
        self._clock = clock
        self._settled: tuple[datetime, float] | None = None

    @property
    def limited(self) -> bool:
        """Whether any budget is set."""
        return self._shared != SharedLimits()

    @property
    def _shared(self) -> SharedLimits:
        limits = self._limits()
        return SharedLimits(limits.day_usd, limits.month_usd, limits.day_tokens)

    async def used_up(self) -> bool:
        """Whether a run would be refused now."""
        if not self.limited:
            return False
        async with self._database.connection() as conn:
            accounts, unpriced = await self._accounts(conn), await budgets.unpriced(conn, self._clock.now())
        shared = self._shared
        money = any(used_up(accounts[p].spent, _allowed(shared.usd(p), accounts[p].extra)) for p in Period)
        return money or used_up(unpriced.tokens, _allowed(shared.day_tokens, unpriced.extra))

    async def reserve(self, run: Claim, highest: Highest, role: Role, *, asked_before: bool) -> None:
        """Reserve the highest cost of a run's next call; raises `OutOfBudget`, `RunLost`.

        A call waits while its reservation and those of others would exceed a budget. If no other call runs, the rest of
        the budget goes to one call, which may exceed it.
        """
        while (refused := await self._reserved(run, highest)) is not None:
            if refused != BUSY:
                raise OutOfBudget(
                    Stop(refused, await self._explain(refused, role, asked_before)), first=not asked_before
                )
            await self._clock.sleep(POLL_SECONDS)

    async def _reserved(self, run: Claim, highest: Highest) -> str | None:
        now = self._clock.now()
        async with self._database.connection() as conn:
            return await budgets.reserve(conn, run, highest, self._shared, now, await self._settled_spending(conn, now))

    async def _accounts(self, conn: Connection) -> Accounts:
        now = self._clock.now()
        return await budgets.accounts(conn, now, await self._settled_spending(conn, now))

    async def _settled_spending(self, conn: Connection, now: datetime) -> float:
        """The cost of earlier days of the month; read once a day, since a month may have many calls."""
        if self._limits().month_usd is None:
            return 0.0
        day = Period.DAY.start(now)
        if self._settled is None or self._settled[0] != day:
            self._settled = day, await budgets.settled_cost(conn, now)
        return self._settled[1]

    async def _explain(self, limit: str, role: Role, asked_before: bool) -> str:
        meaning = "I stopped early; my work so far is kept" if asked_before else "I didn't ask a model"
        if limit == TREE_USD:
            return f"This tree of tasks has used up its budget. {meaning}."
        if role is not Role.OWNER:
            return f"The model budget is used up. {meaning}. Ask the owner to raise it, then write again."
        async with self._database.connection() as conn:
            if limit == DAY_TOKENS:
                spent, more = self._tokens(await budgets.unpriced(conn, self._clock.now()))
            else:
                period = Period(limit.removesuffix("_usd"))
                spent, more = self._money(period, (await self._accounts(conn))[period])
        permanently = f"budgets.{limit} in config.json changes the limit permanently"
        return f"{spent}. {meaning}. {more}; {permanently}. Then write again."

    def _money(self, period: Period, account: Account) -> tuple[str, str]:
        whose, when = PERIOD_WORDS[period]
        limit = self._shared.usd(period) or 0.0
        spent = f"{dollars(account.spent)} spent, {dollars(limit + account.extra)} allowed"
        more = f"/budget more allows another {dollars(limit)} {when}" if limit else "Nothing is allowed"
        return f"{whose} model budget is used up ({spent})", more

    def _tokens(self, unpriced: Unpriced) -> tuple[str, str]:
        limit = self._shared.day_tokens or 0
        spent = f"{unpriced.tokens:,} tokens of {', '.join(unpriced.models)}, {limit + unpriced.extra:,} allowed"
        more = f"/budget more allows another {limit:,} today" if limit else "None are allowed"
        return f"Today's token budget of models without a price is used up ({spent})", more


def _allowed(limit: float | None, extra: float) -> float | None:
    return None if limit is None else limit + extra


@dataclass(slots=True)
class BudgetedModel:
    """The model of one run, which reserves before each call; `tree`: whether a tree's budget applies.

    A reservation ends when the reply's costs are stored, when the run reserves again, or with the run.
    """

    model: SizedModel
    budgets: SharedBudgets
    run: Claim
    role: Role
    tree: bool = False
    _asked: bool = False

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Yield the model's events; raises `OutOfBudget` and `RunLost`."""
        if self.tree or self.budgets.limited:
            await self.budgets.reserve(self.run, self.model.highest(prompt), self.role, asked_before=self._asked)
        self._asked = True
        async with aclosing(self.model.stream(prompt)) as events:
            async for event in events:
                yield event

    def prompt_budget(self) -> int:
        """As in `SizedModel`."""
        return self.model.prompt_budget()

    def highest(self, prompt: Prompt) -> Highest:
        """As in `SizedModel`."""
        return self.model.highest(prompt)
