"""The money of the day and of the month: shared by all runs, asked for before each model call."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from gateway.agent.limits import TREE_USD, Limits
from gateway.domain.conversation.model import Highest, Prompt, Reply, TextDelta, Usage
from gateway.domain.errors import RunLost
from gateway.domain.principals import Role
from gateway.domain.work.tasks import Claim
from gateway.flow.turn.budgets import BudgetedModel, OutOfBudget, SharedBudgets
from gateway.flow.turn.loop import SizedModel
from gateway.store.connection.pool import Database
from gateway.store.work import budgets, steps, tasks
from gateway.store.work.budgets import Period
from tests.agent.scripted import ScriptedModel
from tests.flow.path import MEMBER, FakeModel, MessagePath, build, call, in_turn, said
from tests.store.world import World, found, somebody

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
CALL = 0.001
"""What a call of the fake model costs."""
FREE = Highest()


class StillWaitingError(Exception):
    """Others have reserved the money."""


@dataclass
class Clock:
    at: datetime = NOON

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise StillWaitingError


@pytest.fixture
async def world(database: Database) -> World:
    return await found(database)


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
        await budgets.raise_limit(tx, period, at, usd)


@dataclass
class Runs:
    """Runs that are under way, each as the process that has claimed it sees it."""

    world: World
    clock: Clock = field(default_factory=Clock)
    limits: Limits = field(default_factory=Limits)

    async def one(self, **more: Any) -> Claim:
        await self.world.queue(**more)
        [run] = await self.world.claim(somebody())
        return run

    async def reserve(
        self, run: Claim, highest: Highest = FREE, role: Role = Role.OWNER, *, again: bool = False
    ) -> None:
        """By a process of its own; raises `StillWaitingError` where it would look again."""
        budgets = SharedBudgets(self.world.database, lambda: self.limits, self.clock)
        await budgets.reserve(run, highest, role, asked_before=again)

    async def settle(self, run: Claim, usd: float, tokens: int = 2) -> None:
        """As a sink does with the reply; its costs are noted for the day that the clock shows."""
        async with self.world.database.transaction() as tx:
            await tasks.hold(tx, run)
            reply = Reply("", (), Usage(tokens, 0, 0, usd), "m", 1)
            await steps.model_called(tx, run, reply)
            await tx.execute("update task_steps set created_at = $1 where task_id = $2", self.clock.at, run.id)

    async def refused(self, role: Role = Role.OWNER, *, again: bool = False) -> OutOfBudget:
        with pytest.raises(OutOfBudget) as caught:
            await self.reserve(await self.one(), role=role, again=again)
        return caught.value


@pytest.fixture
def runs(world: World) -> Runs:
    return Runs(world, limits=Limits(day_usd=2, month_usd=20))


class TestBooks:
    async def test_below_its_limits_a_run_may_begin_and_go_on(self, world: World, runs: Runs) -> None:
        await spent(world, 1.99)
        run = await runs.one()
        await runs.reserve(run)
        await runs.reserve(run, again=True)

    async def test_the_owner_is_told_what_was_spent_what_is_allowed_and_what_to_do(
        self, world: World, runs: Runs
    ) -> None:
        await spent(world, 2.03)
        refused = await runs.refused()
        assert refused.first
        assert str(refused) == (
            "Today's model budget is used up ($2.03 spent, $2.00 allowed). I didn't ask a model. "
            "/budget more allows another $2.00 today; budgets.day_usd in config.json changes the limit permanently. "
            "Then write again."
        )

    async def test_a_member_is_told_no_figures(self, world: World, runs: Runs) -> None:
        await spent(world, 2.03)
        assert not any(sign.isdigit() or sign == "$" for sign in str(await runs.refused(Role.MEMBER)))

    async def test_the_month_counts_what_earlier_days_cost(self, world: World, runs: Runs) -> None:
        for days in (0, 1, 2, 10):
            await spent(world, 5, NOON - timedelta(days=days))
        told = str(await runs.refused())
        assert told.startswith("This month's model budget is used up ($20.00 spent, $20.00 allowed).")

    async def test_what_the_owner_allowed_more_counts_at_once(self, world: World, runs: Runs) -> None:
        await spent(world, 2.03)
        await runs.refused()
        await raised(world, Period.DAY, 2.03)
        await runs.reserve(await runs.one())
        await spent(world, 2)
        assert "$4.03 allowed" in str(await runs.refused())

    async def test_a_new_day_begins_with_nothing_spent(self, world: World, runs: Runs) -> None:
        await spent(world, 2)
        await runs.refused()
        runs.clock.at += timedelta(hours=12)
        await runs.reserve(await runs.one())

    async def test_models_that_cost_nothing_need_no_money(self, world: World, runs: Runs) -> None:
        runs.limits = Limits(day_usd=0, month_usd=0)
        await runs.reserve(await runs.one())

    async def test_with_a_limit_of_nothing_there_is_no_more_to_allow(self, world: World, runs: Runs) -> None:
        runs.limits = Limits(day_usd=0)
        await spent(world, 0.01)
        assert "/budget more" not in str(await runs.refused())

    async def test_a_run_that_was_taken_over_is_refused(self, world: World, runs: Runs) -> None:
        run = await runs.one()
        with pytest.raises(RunLost):
            await runs.reserve(replace(run, token=run.token + 1))

    async def test_the_heartbeat_knows_when_nothing_is_left(self, world: World, runs: Runs) -> None:
        budgets = SharedBudgets(world.database, lambda: runs.limits, runs.clock)
        assert not await budgets.used_up()
        await spent(world, 2)
        assert await budgets.used_up()


class TestReservations:
    async def test_two_processes_do_not_spend_the_same_money(self, world: World, runs: Runs) -> None:
        await spent(world, 1)
        one, other = await runs.one(), await runs.one()
        await runs.reserve(one, Highest(0.6))
        with pytest.raises(StillWaitingError):
            await runs.reserve(other, Highest(0.6))
        await runs.settle(one, 0.2)
        await runs.reserve(other, Highest(0.6))

    async def test_those_that_start_at_the_same_instant_neither(self, world: World, runs: Runs) -> None:
        waiting = [await runs.one() for _ in range(8)]
        done = await asyncio.gather(*(runs.reserve(run, Highest(0.6)) for run in waiting), return_exceptions=True)
        assert [type(each) for each in done].count(StillWaitingError) == 5

    async def test_a_call_that_may_cost_more_than_is_left_goes_alone(self, world: World, runs: Runs) -> None:
        one, other = await runs.one(), await runs.one()
        await runs.reserve(one, Highest(50))
        with pytest.raises(StillWaitingError):
            await runs.reserve(other, Highest(0.01))
        await runs.settle(one, 2.5)
        with pytest.raises(OutOfBudget):
            await runs.reserve(other, Highest(0.01))

    async def test_what_a_dead_run_had_reserved_is_free_again(self, world: World, runs: Runs) -> None:
        await runs.reserve(await runs.one(), Highest(50))
        await world.do("update tasks set lease_until = now() - interval '1 s'")
        async with world.database.transaction() as tx:
            await tasks.recover(tx)
        await world.do("update tasks set run_at = now(), status = case when crashes > 0 then 'failed' else status end")
        await runs.reserve(await runs.one(), Highest(0.01))

    async def test_a_tree_has_a_budget_of_its_own(self, world: World, runs: Runs) -> None:
        runs.limits = Limits()
        master = await runs.one(budget_usd=1.0)
        child, stranger = await runs.one(parent=master.id), await runs.one()
        await runs.reserve(child, Highest(0.9))
        with pytest.raises(StillWaitingError):
            await runs.reserve(master, Highest(0.9))
        await runs.reserve(stranger, Highest(50))
        await runs.settle(child, 1.0)
        with pytest.raises(OutOfBudget) as caught:
            await runs.reserve(master, Highest(0.9))
        assert caught.value.stop.limit == TREE_USD

    async def test_models_without_a_price_share_tokens_and_are_named(self, world: World, runs: Runs) -> None:
        runs.limits = Limits(day_tokens=1_000)
        one, other = await runs.one(), await runs.one()
        await runs.reserve(one, Highest(tokens=900))
        with pytest.raises(StillWaitingError):
            await runs.reserve(other, Highest(tokens=900))
        await runs.settle(one, 0, 1_200)
        assert str(await runs.refused()).startswith(
            "Today's token budget of models without a price is used up (1,200 tokens of m, 1,000 allowed)."
        )
        async with world.database.transaction() as tx:
            await budgets.raise_limit(tx, "tokens", NOON, 1_200)
        await runs.reserve(other, Highest(tokens=900))


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


async def test_closing_in_the_middle_of_an_answer_closes_the_models_stream() -> None:
    inner = ScriptedModel([[TextDelta("Hello"), TextDelta(" you")]])
    unlimited = SharedBudgets(cast(Database, None), Limits, Clock())
    model = BudgetedModel(cast(SizedModel, inner), unlimited, cast(Claim, None), Role.OWNER)
    async with aclosing(model.stream(Prompt(()))) as events:
        assert await anext(events) == TextDelta("Hello")
        assert inner.closed == 0
    assert inner.closed == 1
