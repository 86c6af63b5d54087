from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

from gateway.domain.conversation.model import Attempt, Reply, Usage
from gateway.domain.ids import TaskId
from gateway.domain.work.tasks import Claim
from gateway.store.work import steps
from gateway.store.work.steps import ModelUse
from tests.store.world import World

PAST = datetime(2020, 1, 1, tzinfo=UTC)
FUTURE = datetime.now(UTC) + timedelta(days=1)
FAILED = (Attempt("big", "overloaded", "try later"),)
REPLY = Reply("hi", (), Usage(100, 20, 50, 0.25), "small", 900, FAILED)


async def called(world: World, task: TaskId) -> None:
    run = cast(Claim, SimpleNamespace(id=task, principal_id=world.principal))
    async with world.database.transaction() as tx:
        await steps.model_called(tx, run, REPLY)


async def test_a_trace_has_numbers_and_references_in_order(world: World) -> None:
    task, other = await world.queue(), await world.queue()
    await called(world, task)
    await called(world, other)
    async with world.database.transaction() as tx:
        await steps.note(tx, task, world.principal, "tool", "look", ok=True)
    async with world.database.connection() as conn:
        model, tool = await steps.of_task(conn, task, PAST)
        assert await steps.of_task(conn, task, FUTURE) == []
    assert (model.kind, model.name, model.tokens_in, model.tokens_out, model.tokens_cached) == (
        "model",
        "small",
        100,
        20,
        50,
    )
    assert (model.cost_usd, model.latency_ms, model.failed) == (0.25, 900, FAILED)
    assert (tool.kind, tool.name, tool.ok, tool.failed) == ("tool", "look", True, ())


async def test_what_was_spent_counts_model_calls_only(world: World) -> None:
    task, other = await world.queue(), await world.queue()
    for each in (task, task, other):
        await called(world, each)
    async with world.database.transaction() as tx:
        await steps.note(tx, task, world.principal, "tool", "look", ok=True)
    async with world.database.connection() as conn:
        assert await steps.spent_on(conn, task, PAST) == ModelUse(2, 200, 40, 0.5)
        assert await steps.spent_since(conn, PAST) == ModelUse(3, 300, 60, 0.75)
        assert await steps.spent_since(conn, FUTURE) == ModelUse(0, 0, 0, 0.0)
