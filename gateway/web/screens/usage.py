"""Usage: the cost of models by day, model, channel and chat, and the budgets."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from datetime import date, timedelta
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from gateway.domain.time import moment
from gateway.store.transcript import conversations
from gateway.store.work import budgets
from gateway.store.work.budgets import Period, UsageRow
from gateway.web.auth.access import VISITOR
from gateway.web.pages import Screen
from gateway.web.site import AtSite

MOST_SESSIONS = 50
COUNTED = ("calls", "tokens_in", "tokens_out", "tokens_cached", "cost_usd")

screen = Screen("/usage", "Usage", "chart-column", 56)


@screen.get("/usage", dependencies=VISITOR)
async def page(
    request: Request,
    site: AtSite,
    days: Annotated[int, Query(ge=1, le=366)] = 30,
    day: Annotated[date | None, Query(ge=date(2000, 1, 1), le=date(2200, 1, 1))] = None,
) -> Response:
    """The screen: the last days, or one day."""
    now, limits = site.clock.now(), site.settings.limits()
    first, last = (day, day) if day else (now.date() - timedelta(days=days - 1), now.date())
    async with site.database.connection() as conn:
        rows = await budgets.used(conn, moment(str(first), None), moment(str(last), None, end=True))
        accounts = await budgets.accounts(conn, now, await budgets.settled_cost(conn, now))
        by_session = summed(rows, lambda row: row.session_id or row.channel)[:MOST_SESSIONS]
        ids = [line.session_id for line in by_session if line.session_id]
        chats = await conversations.these(conn, site.owner.id, ids)
    limited = ("Today", Period.DAY, limits.day_usd), ("This month", Period.MONTH, limits.month_usd)
    of_day = {line.day: line for line in summed(rows, lambda row: row.day)}
    return site.screen(
        request,
        screen,
        "usage.html",
        span=days,
        day=day,
        total=summed(rows, lambda _row: ""),
        chats=chats,
        by_day=[(each, of_day.get(each)) for each in (first + timedelta(n) for n in range((last - first).days + 1))],
        tables={
            "model": summed(rows, lambda row: row.model),
            "channel": summed(rows, lambda row: row.channel),
            "chat": by_session,
        },
        budgets=[(name, accounts[period], limit) for name, period, limit in limited],
    )


def summed(rows: Iterable[UsageRow], key: Callable[[UsageRow], Hashable]) -> list[UsageRow]:
    """One row for each key, the most expensive first; other fields are those of its first row."""
    groups: dict[Hashable, list[UsageRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    lines = [
        replace(same[0], **{name: sum(getattr(row, name) for row in same) for name in COUNTED})
        for same in groups.values()
    ]
    return sorted(lines, key=lambda line: (line.cost_usd, line.tokens_in + line.tokens_out), reverse=True)
