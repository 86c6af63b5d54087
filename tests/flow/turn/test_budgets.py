"""The money of the day and of the month: shared by all runs, asked for before each model call."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from gateway.agent.limits import UNSPENT, Limits
from gateway.domain.events import ModelReplied
from gateway.domain.model import Reply, Usage
from gateway.domain.principals import Role
from gateway.flow.turn.budgets import Budgets
from gateway.store import spending
from gateway.store.pool import Database
from gateway.store.spending import Period
from tests.flow.path import MEMBER, FakeModel, MessagePath, build, call, in_turn, said
from tests.store.world import World, found

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CALL = 0.001
"""What a call of the fake model costs."""


@dataclass
class Clock:
    at: datetime = NOON

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


@pytest.fixture
async def world(database: Database) -> World:
    return await found(database)


def paid(usd: float) -> ModelReplied:
    return ModelReplied(Reply("", (), Usage(1, 1, 0, usd), "m", 1), ())


async def spent(world: World, usd: float, at: datetime = NOON) -> None:
    task = await world.queue()
    await world.do(
        """insert into task_steps (task_id, principal_id, kind, name, cost_usd, created_at)
           values ($1, $2, 'model', 'm', $3, $4)""",
        task,
        world.principal,
        usd,
        at,
    )


async def raised(world: World, period: Period, usd: float, at: datetime = NOON) -> None:
    async with world.database.transaction() as tx:
        await spending.raise_limit(tx, period, at, usd)


class TestBooks:
    async def test_below_its_limits_a_run_may_begin_and_go_on(self, world: World, database: Database) -> None:
        await spent(world, 1.99)
        allowed = await Budgets(database, lambda: Limits(day_usd=2, month_usd=20), Clock()).allow(Role.OWNER)
        assert allowed.refusal is None
        assert allowed.limits.stop(UNSPENT) is None

    async def test_the_owner_is_told_what_was_spent_what_is_allowed_and_what_to_do(
        self, world: World, database: Database
    ) -> None:
        await spent(world, 2.03)
        allowed = await Budgets(database, lambda: Limits(day_usd=2, month_usd=20), Clock()).allow(Role.OWNER)
        assert allowed.refusal == (
            "Today's model budget is used up ($2.03 spent, $2.00 allowed). I didn't ask a model. "
            "/budget more allows another $2.00 today; budgets.day_usd in config.json changes the limit permanently. "
            "Then write again."
        )

    async def test_a_member_is_told_no_figures(self, world: World, database: Database) -> None:
        await spent(world, 2.03)
        allowed = await Budgets(database, lambda: Limits(day_usd=2), Clock()).allow(Role.MEMBER)
        assert allowed.refusal is not None
        assert not any(sign.isdigit() or sign == "$" for sign in allowed.refusal)

    async def test_the_month_counts_what_earlier_days_cost(self, world: World, database: Database) -> None:
        for days in (0, 1, 2, 10):
            await spent(world, 5, NOON - timedelta(days=days))
        budgets = Budgets(database, lambda: Limits(month_usd=20), Clock())
        refusal = (await budgets.allow(Role.OWNER)).refusal
        assert refusal is not None
        assert refusal.startswith("This month's model budget is used up ($20.00 spent, $20.00 allowed).")

    async def test_what_the_owner_allowed_more_counts_at_once(self, world: World, database: Database) -> None:
        budgets = Budgets(database, lambda: Limits(day_usd=2), Clock())
        await spent(world, 2.03)
        assert (await budgets.allow(Role.OWNER)).refusal is not None
        await raised(world, Period.DAY, 2.03)
        assert (await budgets.allow(Role.OWNER)).refusal is None
        await spent(world, 2)
        assert "$4.03 allowed" in ((await budgets.allow(Role.OWNER)).refusal or "")

    async def test_a_new_day_begins_with_nothing_spent(self, world: World, database: Database) -> None:
        await spent(world, 2)
        clock = Clock()
        budgets = Budgets(database, lambda: Limits(day_usd=2), clock)
        running = (await budgets.allow(Role.OWNER)).limits
        assert running.stop(UNSPENT) is not None
        clock.at += timedelta(hours=12)
        assert running.stop(UNSPENT) is None
        assert (await budgets.allow(Role.OWNER)).refusal is None

    async def test_runs_at_the_same_time_share_what_is_left(self, world: World, database: Database) -> None:
        await spent(world, 1.5)
        budgets = Budgets(database, lambda: Limits(day_usd=2), Clock())
        one, other = [(await budgets.allow(Role.OWNER)).limits for _ in range(2)]
        await budgets.take(paid(0.3))
        assert (one.stop(UNSPENT), other.stop(UNSPENT)) == (None, None)
        await budgets.take(paid(0.3))
        for limits in (one, other):
            stop = limits.stop(UNSPENT)
            assert stop is not None
            assert stop.limit == "day_usd"
            assert stop.text.startswith("Today's model budget is used up ($2.10 spent, $2.00 allowed).")

    async def test_models_that_cost_nothing_need_no_money(self, database: Database) -> None:
        budgets = Budgets(database, lambda: Limits(day_usd=0, month_usd=0), Clock())
        assert (await budgets.allow(Role.OWNER)).refusal is None

    async def test_with_a_limit_of_nothing_there_is_no_more_to_allow(self, world: World, database: Database) -> None:
        await spent(world, 0.01)
        refusal = (await Budgets(database, lambda: Limits(day_usd=0), Clock()).allow(Role.OWNER)).refusal
        assert "/budget more" not in (refusal or "/budget more")

    async def test_without_limits_the_books_are_not_read(self) -> None:
        class Unreachable(Database):
            def __init__(self) -> None:
                """Without a connection."""

        allowed = await Budgets(Unreachable(), Limits, Clock()).allow(Role.OWNER)
        assert allowed.refusal is None
        assert allowed.limits == Limits()


class TestTurns:
    async def test_when_the_day_is_used_up_a_message_is_answered_by_a_notice_and_no_model_is_asked(
        self, database: Database, path: MessagePath
    ) -> None:
        path = await build(database, path.workspace, FakeModel(), limits=Limits(day_usd=CALL))
        async with path.working():
            assert await path.ask("first") == "re: first"
            refused = await path.answer(await path.tell("second"))
            assert refused.notice
            assert refused.text.startswith("Today's model budget is used up ($0.0010 spent")
            told = await path.channel.until(lambda texts: len(texts) == 2)
        assert told[1] == refused.text
        assert path.model.answered == ["first"]
        assert await path.rows("select status, error from tasks order by seq") == [
            ("completed", None),
            ("failed", "out of budget"),
        ]
        assert await path.rows("select count(*) from messages where kind = 'user' and answered_by is null") == [(0,)]

    async def test_a_member_spends_the_same_money(self, database: Database, path: MessagePath) -> None:
        path = await build(database, path.workspace, FakeModel(), limits=Limits(month_usd=CALL))
        async with path.working():
            await path.ask("mine")
            told = await path.ask("theirs", chat=MEMBER, sender=MEMBER)
        assert told.startswith("The model budget is used up.")

    async def test_a_run_stops_before_the_call_that_has_no_money_left(
        self, database: Database, path: MessagePath
    ) -> None:
        model = FakeModel(in_turn(*(said("", call("look", text=str(n))) for n in range(9))))
        path = await build(database, path.workspace, model, limits=Limits(day_usd=3 * CALL))
        async with path.working():
            told = await path.ask("go")
        assert "I stopped early" in told
        assert len(model.prompts) == 3

    async def test_what_another_chat_spends_meanwhile_stops_a_run_too(
        self, database: Database, path: MessagePath
    ) -> None:
        model = FakeModel(in_turn(said("", call("look", text="x")), said("quick"), said("never asked for")))
        path = await build(database, path.workspace, model, limits=Limits(day_usd=2 * CALL))
        reached, go = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            reached.set()
            await go.wait()

        path.workshop.during = hang
        async with path.working():
            slow = await path.tell("slow")
            await reached.wait()
            assert await path.ask("quick", chat=MEMBER, sender=MEMBER) == "quick"
            go.set()
            assert (await path.answer(slow)).text.startswith("Today's model budget")
        assert len(model.prompts) == 2

    async def test_calls_of_a_run_that_failed_count(self, database: Database, path: MessagePath) -> None:
        model = FakeModel(in_turn(said("", call("look", text="x")), RuntimeError("a bug")))
        path = await build(database, path.workspace, model, limits=Limits(day_usd=CALL))
        await path.tell("go")
        run = asyncio.create_task(path.turns.run(await path.claim()))
        await asyncio.wait([run])
        await path.rows("update tasks set status = 'pending', run_at = now() returning id")
        again = await build(database, path.workspace, FakeModel(), path.instance, limits=Limits(day_usd=CALL))
        async with again.working():
            [told] = await again.channel.until(bool)
        assert told.startswith("Today's model budget")
        assert again.model.prompts == []
