from pathlib import Path

from gateway.agent.limits import Limits
from gateway.store.connection.pool import Database
from tests.flow.path import MEMBER, FakeModel, MessagePath, build


async def limited(database: Database, workspace: Path, **limits: float | None) -> MessagePath:
    return await build(database, workspace, FakeModel(), limits=Limits(**limits))


async def spent(path: MessagePath, usd: float) -> None:
    """One more model call, in a task of its own."""
    await path.rows(
        """with task as (
             insert into tasks (id, master_id, kind, lane, principal_id, status)
             select gen_random_uuid(), gen_random_uuid(), 'agent', 'agents', id, 'completed' from principals
             where role = 'owner' returning id, principal_id)
           insert into task_steps (task_id, principal_id, kind, name, cost_usd)
           select id, principal_id, 'model', 'm', $1 from task returning id""",
        usd,
    )


async def test_it_shows_what_is_spent_allowed_and_left(database: Database, workspace: Path) -> None:
    path = await limited(database, workspace, day_usd=2, month_usd=20)
    await spent(path, 0.5)
    assert (await path.ask("/budget")).split("\n") == [
        "One answer: $0.50 allowed",
        "Today: $0.50 spent, $2.00 allowed, $1.50 left",
        "This month: $0.50 spent, $20.00 allowed, $19.50 left",
    ]


async def test_it_shows_what_the_last_answer_cost(database: Database, workspace: Path) -> None:
    path = await limited(database, workspace, usd=1)
    async with path.working():
        await path.ask("hello")
    assert (await path.ask("/budget")).startswith("One answer: $1.00 allowed, the last one here cost $0.0010\n")


async def test_no_limit_is_said_so(database: Database, workspace: Path) -> None:
    path = await limited(database, workspace, usd=None, month_usd=None)
    assert (await path.ask("/budget")).split("\n") == [
        "One answer: no limit",
        "Today: $0.00 spent, no limit",
        "This month: $0.00 spent, no limit",
    ]


async def test_more_allows_the_whole_limit_once_more_and_the_next_message_is_answered(
    database: Database, workspace: Path
) -> None:
    path = await limited(database, workspace, day_usd=2, month_usd=20)
    await spent(path, 2.1)
    async with path.working():
        assert (await path.ask("hello")).startswith("Today's model budget is used up")
        assert (await path.ask("/budget more")).split("\n") == [
            "Today: another $2.00, $4.10 in all.",
            "Send any unanswered message again.",
        ]
        assert (await path.ask("hello again")).endswith("hello again")
    assert "Today: $2.10 spent, $4.10 allowed ($2.10 of it by /budget more), $2.00 left" in await path.ask("/budget")


async def test_a_yes_survives_a_restart_and_can_be_given_again(database: Database, workspace: Path) -> None:
    path = await limited(database, workspace, day_usd=2)
    await spent(path, 2)
    await path.ask("/budget more")
    again = await limited(database, workspace, day_usd=2)
    async with again.working():
        assert await again.ask("hello") == "re: hello"
        await spent(again, 2)
        assert "used up" in await again.ask("more work")
    assert "another $2.00" in await again.ask("/budget more")


async def test_a_used_up_month_is_raised_too(database: Database, workspace: Path) -> None:
    path = await limited(database, workspace, day_usd=2, month_usd=2)
    await spent(path, 2)
    told = await path.ask("/budget more")
    assert [line.partition(":")[0] for line in told.split("\n")[:2]] == ["Today", "This month"]
    async with path.working():
        assert await path.ask("hello") == "re: hello"


async def test_models_without_a_price_are_named_and_get_their_tokens_once_more(
    database: Database, workspace: Path
) -> None:
    path = await limited(database, workspace, day_tokens=1_000)
    await spent(path, 0)
    await path.rows("update task_steps set tokens_in = 1200 returning id")
    assert "Today, models without a price: 1,200 tokens (m), 1,000 allowed" in await path.ask("/budget")
    async with path.working():
        assert "token budget" in await path.ask("hello")
        assert "another 1,000 tokens" in await path.ask("/budget more")
        assert await path.ask("hello") == "re: hello + hello"
    assert "2,200 allowed" in await path.ask("/budget")


async def test_more_of_what_is_not_used_up_changes_nothing(database: Database, workspace: Path) -> None:
    path = await limited(database, workspace, day_usd=2)
    await spent(path, 1)
    assert "No limit is used up" in await path.ask("/budget more")
    assert await path.rows("select count(*) from meta where key like 'budget:%'") == [(0,)]


async def test_a_member_neither_sees_nor_raises_it(database: Database, workspace: Path) -> None:
    path = await limited(database, workspace, day_usd=2)
    await spent(path, 2)
    for said in ("/budget", "/budget more"):
        assert await path.ask(said, chat=MEMBER, sender=MEMBER) == "Only the owner can use /budget, in a private chat."
    assert await path.rows("select count(*) from meta where key like 'budget:%'") == [(0,)]


async def test_it_says_what_can_be_written(database: Database, workspace: Path) -> None:
    path = await limited(database, workspace)
    assert (await path.ask("/budget lots")).startswith("Write /budget to see")
