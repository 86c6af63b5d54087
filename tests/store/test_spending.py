from datetime import UTC, datetime, timedelta

import pytest

from gateway.store.work import budgets
from gateway.store.work.budgets import Account, Period
from tests.store.world import World

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FIRST = datetime(2026, 11, 1, 8, tzinfo=UTC)


async def spent(world: World, usd: float, at: datetime) -> None:
    task = await world.queue()
    await world.do(
        """insert into task_steps (task_id, principal_id, kind, name, cost_usd, created_at)
           values ($1, $2, 'model', 'm', $3, $4)""",
        task,
        world.principal,
        usd,
        at,
    )


async def read(world: World, now: datetime) -> dict[Period, Account]:
    async with world.database.connection() as conn:
        return await budgets.accounts(conn, now, await budgets.settled_cost(conn, now))


async def test_each_call_counts_once_in_the_day_and_the_month_it_was_made_in(world: World) -> None:
    await spent(world, 1, datetime(2026, 10, 31, 23, 59, 59, tzinfo=UTC))
    for days in range(21):
        await spent(world, 0.5, datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=days))
    await spent(world, 0.25, datetime(2026, 11, 20, 23, 59, 59, tzinfo=UTC))
    await spent(world, 0.25, NOON)

    assert await read(world, NOON) == {Period.DAY: Account(0.75), Period.MONTH: Account(11.0)}


async def test_on_the_first_of_a_month_yesterday_is_no_part_of_it(world: World) -> None:
    await spent(world, 1, FIRST - timedelta(days=1))
    await spent(world, 0.5, FIRST)

    assert await read(world, FIRST) == {Period.DAY: Account(0.5), Period.MONTH: Account(0.5)}


async def test_a_raised_limit_holds_until_its_period_is_over(world: World) -> None:
    async with world.database.transaction() as tx:
        await budgets.raise_limit(tx, Period.DAY, NOON, 1.5)
        await budgets.raise_limit(tx, Period.DAY, NOON, 2.25)
        await budgets.raise_limit(tx, Period.MONTH, NOON, 20)

    assert await read(world, NOON) == {Period.DAY: Account(0, 2.25), Period.MONTH: Account(0, 20)}
    assert await read(world, NOON + timedelta(days=1)) == {Period.DAY: Account(), Period.MONTH: Account(0, 20)}
    assert await read(world, NOON + timedelta(days=14)) == {Period.DAY: Account(), Period.MONTH: Account()}


@pytest.mark.parametrize("now", [NOON, FIRST])
async def test_a_day_and_a_month_raised_on_the_first_do_not_mix(world: World, now: datetime) -> None:
    async with world.database.transaction() as tx:
        await budgets.raise_limit(tx, Period.DAY, now, 1)

    assert await read(world, now) == {Period.DAY: Account(0, 1), Period.MONTH: Account()}
