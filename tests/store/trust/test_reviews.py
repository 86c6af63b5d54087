from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from gateway.domain.conversation.tools import ToolClass
from gateway.domain.ids import TaskId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Status
from gateway.store.trust import audit, reviews
from gateway.store.trust.audit import Event
from gateway.store.trust.reviews import ReviewQuestion
from gateway.store.work import retention, tasks
from tests.store.world import World, blocked, somebody

NOW = datetime.now(UTC)
LATER = NOW + timedelta(hours=1)


async def waiting_task(world: World) -> TaskId:
    """A task that waits for the answer to its question."""
    await world.queue(session=world.session)
    [run] = await world.claim(somebody())
    question = ReviewQuestion(
        world.principal,
        world.principal,
        "request_human_review",
        {},
        "Shall I?",
        Label.OWNER,
        session=world.session,
        task=run.id,
        act=ToolClass.PERSIST,
        kind="review",
    )
    async with world.database.transaction() as tx:
        await tasks.suspend(tx, run, Status.NEEDS_HUMAN_REVIEW)
        await reviews.ask(tx, question, NOW)
    return run.id


async def expire(world: World) -> None:
    async with world.database.transaction() as tx:
        await reviews.expire(tx, LATER)


async def close(world: World) -> None:
    async with world.database.transaction() as tx:
        await reviews.close(tx, world.session)


@pytest.mark.parametrize("end", [expire, close])
async def test_questions_end_after_a_cancel_of_the_task_that_asked(
    world: World, end: Callable[[World], Awaitable[None]]
) -> None:
    task = await waiting_task(world)
    async with world.database.transaction() as tx:
        await tasks.cancel(tx, task)
        ending = await blocked(world.database, end(world))
        await reviews.close_cancelled(tx, task)
    await ending
    async with world.database.connection() as conn:
        assert [row.state for row in await reviews.latest(conn, world.principal, 5)] == ["closed"]
        assert [row.event for row in await audit.newest(conn, 2)] == [Event.CLOSED, Event.ASKED]


async def test_questions_expire_beside_a_run_that_notes_an_act_while_it_holds_a_task(world: World) -> None:
    first, second = await waiting_task(world), await waiting_task(world)
    async with world.database.transaction() as tx:
        await tx.execute("select from tasks where id = $1 for update", second)
        expiring = await blocked(world.database, expire(world))
        await audit.note(tx, Event.RUN, "A9")

    await expiring
    assert [await world.status(task) for task in (first, second)] == [Status.PENDING, Status.PENDING]
    async with world.database.connection() as conn:
        events = [row.event for row in await audit.newest(conn, 3)]
    assert events == [Event.EXPIRED, Event.EXPIRED, Event.RUN]


async def test_questions_close_beside_a_run_that_notes_an_act_while_it_holds_a_task(world: World) -> None:
    await waiting_task(world)
    held = await waiting_task(world)
    async with world.database.transaction() as tx:
        await tx.execute("select from tasks where id = $1 for update", held)
        closing = await blocked(world.database, close(world))
        await audit.note(tx, Event.RUN, "A9")

    await closing


async def test_a_question_expires_whose_task_was_cleared(world: World) -> None:
    task = await waiting_task(world)
    async with world.database.transaction() as tx:
        await tasks.cancel(tx, task)
        assert await retention.clear_trees(tx, LATER) == [task]

    await expire(world)

    async with world.database.connection() as conn:
        [row] = await reviews.latest(conn, world.principal, 5)
        assert row.state == "expired"
        assert [each.event for each in await audit.newest(conn, 1)] == [Event.EXPIRED]


async def test_more_budget_for_a_task_that_was_cleared_changes_nothing(world: World) -> None:
    task = await waiting_task(world)
    async with world.database.transaction() as tx:
        await tx.execute("""update reviews set tool = $1, arguments = '{"usd": 5}'""", reviews.BUDGET)
        await tasks.cancel(tx, task)
        await retention.clear_trees(tx, LATER)
        [row] = await reviews.list_open(tx, world.principal, NOW)

        decided = await reviews.decide(tx, row.id, world.principal, NOW, yes=True, by="web:1", label=Label.OWNER)

    assert decided is not None
    assert (decided.state, decided.decided_by) == ("approved", "web:1")
