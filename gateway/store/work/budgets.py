"""Budgets: what the models cost in the current day and month, and what the owner allowed beyond the limits."""

from dataclasses import astuple, dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Literal

from gateway.domain.conversation.model import Highest
from gateway.domain.ids import SessionId
from gateway.domain.work.tasks import Claim
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_one, fetch_record, fetch_value, statement
from gateway.store.transcript.messages import DELETED, EARLIER, REVISED


class Period(StrEnum):
    """A stretch of time, in UTC, that has a budget of its own."""

    DAY = "day"
    MONTH = "month"

    def start(self, now: datetime) -> datetime:
        """When the one under way began."""
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight if self is Period.DAY else midnight.replace(day=1)


@dataclass(frozen=True, slots=True)
class Account:
    """One period's money, in US dollars: `extra` is what its limit was raised by."""

    spent: float = 0.0
    extra: float = 0.0


Accounts = dict[Period, Account]
Tokens = Literal["tokens"]
BUSY = "busy"
DAY_TOKENS = "day_tokens"


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """The limits that all runs have together; None: no limit."""

    day_usd: float | None = None
    month_usd: float | None = None
    day_tokens: int | None = None

    def usd(self, period: Period) -> float | None:
        """The money of that period."""
        return self.day_usd if period is Period.DAY else self.month_usd


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Tokens of models without a price in the current day, and these models; `extra` as in `Account`."""

    tokens: int
    extra: int
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One session's use of one model on one day (UTC), for messages of one channel; other work is named by its kind."""

    day: date
    model: str
    channel: str
    session_id: SessionId | None
    person: str
    calls: int
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    cost_usd: float


_NO_CHANNELS = ["gateway", EARLIER, REVISED, DELETED]
"""Origins of user texts that came by no channel."""


async def used(conn: Connection, since: datetime, until: datetime) -> list[UsageRow]:
    """The use of models in that time, by day; a call counts for the channel of the last message before it.

    Of tasks that were cleared, only sums are left: they count for the channel of their session's first message.
    """
    return await fetch_all(conn, UsageRow, statement("work/usage"), since, until, _NO_CHANNELS)


async def settled_cost(conn: Connection, now: datetime) -> float:
    """The cost of the month until the start of yesterday: every run before that has ended."""
    sql = """select coalesce(sum(cost_usd), 0) from task_steps
             where cost_usd > 0 and created_at >= $1 and created_at < $2"""
    return float(await conn.fetchval(sql, Period.MONTH.start(now), _unsettled(now)))


async def accounts(conn: Connection, now: datetime, before: float) -> Accounts:
    """Both periods; `before` is what `settled` says, so that a turn reads two days and not a month."""
    sql = """select coalesce(sum(cost_usd) filter (where created_at >= $2), 0) as day,
                    coalesce(sum(cost_usd), 0) as month,
                    coalesce((select value from meta where key = $3), '0')::float8 as extra_day,
                    coalesce((select value from meta where key = $4), '0')::float8 as extra_month
             from task_steps where cost_usd > 0 and created_at >= $1"""
    keys = _key(Period.DAY, now), _key(Period.MONTH, now)
    row = await fetch_record(conn, sql, _unsettled(now), Period.DAY.start(now), *keys)
    return {
        Period.DAY: Account(row["day"], row["extra_day"]),
        Period.MONTH: Account(before + row["month"], row["extra_month"]),
    }


async def unpriced(conn: Connection, now: datetime) -> Unpriced:
    """The tokens of calls that cost nothing, as far as anybody knows."""
    sql = """select coalesce(sum(tokens_in + tokens_out), 0)::bigint as tokens,
                    coalesce((select value from meta where key = $2), '0')::float8::bigint as extra,
                    array(select distinct unnest(array_agg(name)) order by 1) as models
             from task_steps where kind = 'model' and cost_usd = 0 and created_at >= $1"""
    return await fetch_one(conn, Unpriced, sql, Period.DAY.start(now), _key("tokens", now))


async def reserve(
    conn: Connection, run: Claim, highest: Highest, shared: SharedLimits, now: datetime, before: float
) -> str | None:
    """Count the next call of a run before it is made; None if it may be, else the limit that is used up, or `BUSY`.

    `BUSY` says that it would fit, or be the last one, if calls under way had ended. `before` as in `accounts`; that of
    the run's tree is a limit as well. Raises `RunLost`.
    """
    sql = "select reserve($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    return await fetch_value(conn, str, sql, run.id, run.token, *astuple(highest), now, before, *astuple(shared))


async def raise_limit(conn: Connection, limit: Period | Tokens, now: datetime, amount: float) -> None:
    """Until the period is over, or the day, the limit of money or of the tokens of models without a price is higher."""
    sql = "insert into meta (key, value) values ($1, $2) on conflict (key) do update set value = excluded.value"
    await conn.execute(sql, _key(limit, now), amount)


def _unsettled(now: datetime) -> datetime:
    return max(Period.MONTH.start(now), Period.DAY.start(now) - timedelta(days=1))


def _key(limit: Period | Tokens, now: datetime) -> str:
    period = limit if isinstance(limit, Period) else Period.DAY
    return f"budget:{period.start(now):%Y-%m-%d}:{limit}"
