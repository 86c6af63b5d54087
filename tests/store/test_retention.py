from datetime import UTC, date, datetime, timedelta

import pytest

from gateway.domain.ids import TaskId
from gateway.domain.work.tasks import Status
from gateway.store.work import budgets, retention
from tests.store.world import World

OLD = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = OLD + timedelta(days=100)


async def over(world: World, at: datetime = OLD, *, parent: TaskId | None = None, status: str = "completed") -> TaskId:
    """A task that ended then, with a model call."""
    task = await world.queue()
    await world.do("update tasks set parent_id = $2, master_id = coalesce($2, id) where id = $1", task, parent)
    await world.do(
        """insert into task_steps (task_id, principal_id, kind, name, tokens_in, tokens_out, cost_usd, created_at)
           values ($1, $2, 'model', 'm', 10, 5, 0.5, $3)""",
        task,
        world.principal,
        at,
    )
    await world.do("update tasks set status = $2, updated_at = $3 where id = $1", task, status, at)
    return task


async def clear(world: World, before: datetime = LATER) -> list[TaskId]:
    return await world.database.run(lambda tx: retention.clear_trees(tx, before))


async def used(world: World) -> list[tuple[date, int, float]]:
    async with world.database.connection() as conn:
        rows = await budgets.used(conn, OLD - timedelta(days=1), LATER)
    return sorted((row.day, row.calls, row.cost_usd) for row in rows)


async def test_a_tree_goes_as_a_whole_with_its_steps_and_its_sums_stay(world: World) -> None:
    top = await over(world)
    await over(world, parent=top)
    before = await used(world)
    assert await clear(world) == [top]
    assert await world.value("select count(*) from tasks") == 0
    assert await world.value("select count(*) from task_steps") == 0
    assert await used(world) == before == [(OLD.date(), 2, 1.0)]
    assert await clear(world) == []


async def test_sums_of_several_days_clearings_add_up(world: World) -> None:
    for _ in range(2):
        await over(world)
        await clear(world)
    assert await used(world) == [(OLD.date(), 2, 1.0)]


@pytest.mark.parametrize(
    ("status", "at"), [(Status.PENDING, OLD), (Status.NEEDS_HUMAN_REVIEW, OLD), (Status.COMPLETED, LATER)]
)
async def test_a_tree_with_something_open_or_recent_stays(world: World, status: Status, at: datetime) -> None:
    top = await over(world)
    await over(world, at, parent=top, status=status.value)
    assert await clear(world) == []
    assert await world.value("select count(*) from task_steps") == 2


async def test_what_was_said_and_run_stays_with_the_tasks_id(world: World) -> None:
    task = await over(world)
    await world.answer("kept", task)
    assert await clear(world) == [task]
    assert await world.value("select task_id from messages where text = 'kept'") == task


async def test_deliveries_that_are_over_go_and_open_ones_stay(world: World) -> None:
    for text, state in (("a", "sent"), ("b", "uncertain"), ("c", "failed"), ("d", "pending")):
        message = await world.answer(text)
        await world.do(
            """insert into outbox (principal_id, address_id, message_id, text, state, created_at)
               values ($1, $2, $3, $4, $5, $6)""",
            world.principal,
            world.address,
            message,
            text,
            state,
            OLD,
        )
    gone = await world.database.run(lambda tx: retention.clear(tx, retention.DELIVERIES, LATER))
    assert gone == 3
    assert await world.value("select string_agg(text, '') from outbox") == "d"
    assert await world.value("select count(*) from messages") == 4


async def test_a_buttons_text_is_emptied_and_its_row_and_all_others_stay(world: World) -> None:
    for kind in ("button", "command", "edit"):
        await world.do(
            """insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, text,
                                  platform_time, handled_at) values ($1, $2, 'x', '', '1', $3, $3, 'text', $4, $4)""",
            world.principal,
            world.address,
            kind,
            OLD,
        )
    assert await world.database.run(lambda tx: retention.clear(tx, retention.BUTTONS, LATER)) == 1
    assert await world.value("select string_agg(kind || text, ' ' order by id) from inbox") == (
        "button commandtext edittext"
    )


async def test_growth_is_told_since_the_oldest_day_of_the_month(world: World) -> None:
    today = date(2026, 11, 25)
    await world.database.run(lambda tx: retention.note_sizes(tx, today - timedelta(days=30)))
    await world.do("update table_sizes set bytes = bytes - 1000 where name = 'tasks'")
    async with world.database.connection() as conn:
        found = {each.name: each for each in await retention.largest(conn, today, 100)}
    assert (found["tasks"].grown, found["tasks"].days) == (1000, 30)
    assert found["tasks"].bytes > 0
