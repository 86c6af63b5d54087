"""Budgets: when the budget of a day or month is used up, no model is called, and the owner is asked for more."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from gateway.agent.limits import Limits, Stop, dollars, used_up
from gateway.domain.clock import Clock
from gateway.domain.events import ModelReplied, TurnEvent
from gateway.domain.principals import Role
from gateway.store import spending
from gateway.store.pool import Connection, Database
from gateway.store.spending import Account, Accounts, Period

WORDS = {Period.DAY: ("Today's", "today"), Period.MONTH: ("This month's", "this month")}


@dataclass(frozen=True, slots=True)
class Allowed:
    """The limits of one run; or why it may not start, in words for the person who asked."""

    limits: Limits
    refusal: str | None


class Budgets:
    """One per process: the spending as last read from the database, plus what runs here have spent since."""

    def __init__(self, database: Database, limits: Callable[[], Limits], clock: Clock) -> None:
        self._database = database
        self._limits = limits
        self._clock = clock
        self._read_at: datetime | None = None
        self._accounts: Accounts = {}
        self._settled: tuple[datetime, float] | None = None

    async def allow(self, role: Role) -> Allowed:
        """The limits of a run that starts now; concurrent runs share what is left."""
        limits = self._limits()
        if limits.day_usd is None and limits.month_usd is None:
            return Allowed(limits, None)
        await self._read_spending()
        gone = self._exhausted(limits)
        refusal = None if gone is None else self._explain(gone, limits, role, "I didn't ask a model")
        return Allowed(replace(limits, purse=lambda: self._stop(limits, role)), refusal)

    async def take(self, event: TurnEvent) -> None:
        """As a sink: count what a run has just spent against the budget of all."""
        if isinstance(event, ModelReplied):
            cost = event.reply.usage.cost_usd
            self._accounts = {
                period: replace(account, spent=account.spent + cost) for period, account in self._accounts.items()
            }

    async def _read_spending(self) -> None:
        now = self._clock.now()
        async with self._database.connection() as conn:
            self._accounts = await spending.accounts(conn, now, await self._settled_spending(conn, now))
        self._read_at = now

    async def _settled_spending(self, conn: Connection, now: datetime) -> float:
        """What earlier days of the month cost; read once a day, since a month may have many calls."""
        day = Period.DAY.start(now)
        if self._settled is None or self._settled[0] != day:
            self._settled = day, await spending.settled(conn, now)
        return self._settled[1]

    def _exhausted(self, limits: Limits) -> Period | None:
        """The longest period whose budget is used up."""
        for period in (Period.MONTH, Period.DAY):
            limit, account = _limit(limits, period), self._account(period)
            if limit is not None and used_up(account.spent, limit + account.extra):
                return period
        return None

    def _account(self, period: Period) -> Account:
        """Of the current period: midnight may have passed since it was read."""
        now = self._clock.now()
        if self._read_at is None or period.start(now) != period.start(self._read_at):
            return Account()
        return self._accounts[period]

    def _stop(self, limits: Limits, role: Role) -> Stop | None:
        gone = self._exhausted(limits)
        if gone is None:
            return None
        return Stop(f"{gone.value}_usd", self._explain(gone, limits, role, "I stopped early; my work so far is kept"))

    def _explain(self, period: Period, limits: Limits, role: Role, meaning: str) -> str:
        whose, when = WORDS[period]
        if role is not Role.OWNER:
            return f"The model budget is used up. {meaning}. Ask the owner to raise it, then write again."
        limit, account = _limit(limits, period) or 0.0, self._account(period)
        spent = f"{dollars(account.spent)} spent, {dollars(limit + account.extra)} allowed"
        more = f"/budget more allows another {dollars(limit)} {when}" if limit else "Nothing is allowed"
        return (
            f"{whose} model budget is used up ({spent}). {meaning}. {more}; budgets.{period.value}_usd in "
            "config.json changes the limit permanently. Then write again."
        )


def _limit(limits: Limits, period: Period) -> float | None:
    return limits.day_usd if period is Period.DAY else limits.month_usd
