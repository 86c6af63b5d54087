"""/schedules, as people write it."""

import json

import pytest

from gateway.domain.conversation.model import ToolCall
from tests.flow.path import MEMBER, MessagePath, in_turn, results, said

GROUP = {"chat": "g", "private": False}
THEIRS = {"sender": MEMBER, "chat": MEMBER}


async def add(path: MessagePath, *, who: dict[str, object] | None = None, **arguments: object) -> None:
    """Through the agent, in UTC."""
    given = {"name": "stretch", "prompt": "Remind them.", "timezone": "UTC", **arguments}
    path.model.answer = in_turn(said("", ToolCall("", "cron", json.dumps({"action": "add", **given}))), said("done"))
    async with path.working():
        assert await path.ask("please", **(who or {})) == "done"
    assert "error" not in results(path.model.prompts[-1])[-1]


async def test_without_any_it_says_how_to_get_one(path: MessagePath) -> None:
    text = await path.ask("/schedules")
    assert text.startswith("Nothing is scheduled here. Say what you want and when")


async def test_they_are_listed_with_what_comes_next(path: MessagePath) -> None:
    await add(path, cron_expr="30 8 * * *")
    await add(path, name="new year", run_at="2030-01-01T00:00")
    await add(path, name="someday")
    daily, once, backlog, _, usage = (await path.ask("/schedules")).splitlines()
    assert daily.startswith("1: stretch; every day at 08:30 UTC")
    assert "; next " in daily
    assert once == "2: new year; once, Tue 1 Jan 2030 00:00 UTC"
    assert backlog == "3: someday; backlog"
    assert usage.startswith("Write /schedules")


async def test_one_rests_goes_on_and_is_removed(path: MessagePath) -> None:
    await add(path, cron_expr="30 8 * * *")
    assert (await path.ask("/schedules pause Stretch")).endswith("; paused")
    assert (await path.ask("/schedules")).startswith("Nothing")
    assert "1: stretch" in await path.ask("/schedules all")
    assert (await path.ask("/schedules resume 1")).startswith("Resumed: 1: stretch")
    await path.rows("update schedules set failing_since = now(), completed_at = now()")
    assert "; over; failing since " in await path.ask("/schedules all")
    assert (await path.ask("/schedules remove 1")).startswith("Removed: 1: stretch")
    assert (await path.ask("/schedules all")).startswith("Nothing")


async def test_one_that_is_valid_no_more_breaks_no_list(path: MessagePath) -> None:
    await add(path, cron_expr="30 8 * * *")
    await add(path, name="once", run_at="2030-01-01T00:00")
    await path.rows("update schedules set zone = 'Mars/Olympus', cron = case when cron is not null then 'soon' end")
    assert len((await path.ask("/schedules List")).splitlines()) == 4
    assert "which is not valid" in await path.ask("/schedules pause 1")
    assert (await path.ask("/schedules resume 1")).startswith("Its time is no longer valid: ")
    assert (await path.ask("/schedules run once")).startswith("Running now")


async def test_one_is_run_by_hand_without_moving_its_next_time(path: MessagePath) -> None:
    await add(path, cron_expr="30 8 * * *")
    before = await path.rows("select next_run_at from schedules")
    assert (await path.ask("/schedules run stretch")).startswith("Running now: 1: stretch")
    assert await path.ask("/schedules run 1") == "Schedule 1 is running; wait until it ends."
    assert await path.rows("select next_run_at from schedules") == before
    assert await path.rows("select input->>'name', status from tasks where kind = 'agent'") == [("stretch", "pending")]


@pytest.mark.parametrize("typed", ["pause", "run", "remove me", "all of it", "delete 1", "pause  "])
async def test_what_is_not_understood_says_what_can_be_written(path: MessagePath, typed: str) -> None:
    text = await path.ask(f"/schedules {typed}")
    assert text.startswith(("Write /schedules to see", "There is no schedule 'me'"))


async def test_everybody_has_their_own_and_so_has_a_group(path: MessagePath) -> None:
    await add(path, cron_expr="30 8 * * *")
    await add(path, who=GROUP, name="stand up", cron_expr="0 9 * * 1-5")
    async with path.working():
        await path.ask("/approve A1", **GROUP)
        await path.settled()
    await add(path, who=THEIRS, name="tea", cron_expr="0 16 * * *")
    lists = [await path.ask("/schedules all", **who) for who in ({}, GROUP, THEIRS)]
    firsts = [text.partition(";")[0].split(": ") for text in lists]
    assert [name for _, name in firsts] == ["stretch", "stand up", "tea"]
    for which in (*(number for number, _ in firsts[:2]), "stretch", "stand up"):
        for action in ("run", "pause", "resume", "remove"):
            assert "no schedule" in await path.ask(f"/schedules {action} {which}", **THEIRS)
    assert await path.rows("select count(*) from schedules where paused_at is null and task_id is null") == [(3,)]


async def test_the_agent_is_told_the_zone_or_that_it_is_to_be_asked(path: MessagePath) -> None:
    async with path.working():
        await path.ask("hello")
    assert "Their time zone is not known." in path.model.prompts[0].messages[0].text
