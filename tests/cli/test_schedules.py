import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.conversation.inbound import Address
from gateway.domain.principals import Label, Role
from gateway.domain.work.schedules import ScheduleDefinition
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import addresses
from gateway.store.people import principals
from gateway.store.transcript import sessions
from gateway.store.work import schedules
from tests.cli.conftest import Supaclaw

Ask = Callable[..., Any]


@pytest.fixture(autouse=True)
def _somebody_owns_it(dsn: str, monkeypatch: pytest.MonkeyPatch, supaclaw: Supaclaw) -> None:
    monkeypatch.setenv("SUPACLAW_DATABASE_URL", dsn)
    supaclaw("owner", "set", "telegram", "1")


@pytest.fixture
def database(dsn: str) -> Callable[[Callable[[Connection], Awaitable[Any]]], Any]:
    """Do something in the database, in a transaction."""

    def work(what: Callable[[Connection], Awaitable[Any]]) -> Any:
        async def worked() -> Any:
            async with await Database.connect(dsn, size=1) as connected:
                return await connected.run(what)

        return asyncio.run(worked())

    return work


def added(supaclaw: Supaclaw, *more: str, name: str = "stretch") -> str:
    done = supaclaw("schedules", "add", name, "--prompt", "Remind me.", *more)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_one_is_added_listed_and_shown(supaclaw: Supaclaw) -> None:
    out = added(supaclaw, "--cron", "30 8 * * 1-5", "--zone", "Europe/Berlin", "--misfire", "catch_up", "--history")
    assert out.startswith("added: 1: stretch; every weekday at 08:30 Europe/Berlin (30 8 * * 1-5); next ")
    assert "it runs once one is started" in out
    [listed] = supaclaw("schedules", "list", "--json").json
    assert (listed["id"], listed["name"], listed["of"], listed["state"]) == (1, "stretch", None, "")
    assert (listed["misfire"], listed["include_session_history"], listed["origin"]) == ("catch_up", True, "cli")
    assert "stretch" in supaclaw("schedules", "list").out
    shown = supaclaw("schedules", "show", "stretch", "--json").json
    assert (shown["prompt"], shown["runs"]) == ("Remind me.", [])
    assert shown["next_run_at"][11:16] == "08:30"
    assert "prompt: Remind me." in supaclaw("schedules", "show", "1").out


def test_where_there_are_none_it_says_what_to_do(supaclaw: Supaclaw) -> None:
    assert supaclaw("schedules", "list").out.startswith("Nothing is scheduled. `supaclaw schedules add --help`")
    assert supaclaw("schedules", "list", "--json").json == []


def test_where_the_zone_is_not_known_it_says_so(supaclaw: Supaclaw) -> None:
    assert "UTC is used" in added(supaclaw, "--cron", "0 9 * * *", name="a")
    assert "UTC is used" not in added(supaclaw, "--cron", "0 9 * * *", "--zone", "Asia/Tokyo", name="b")
    assert "UTC is used" not in added(supaclaw, name="c")


def test_every_change_answers_programs_too(supaclaw: Supaclaw) -> None:
    add = ("add", "stretch", "--prompt", "x", "--cron", "0 9 * * *")
    for call in (add, ("pause", "1"), ("resume", "1"), ("run", "1"), ("remove", "1")):
        told = supaclaw("schedules", *call, "--json").json
        assert (told["id"], told["name"], told["state"]) == (1, "stretch", "paused" if call[0] == "pause" else "")
        assert (told["task_id"] is None) == (call[0] in {"add", "pause", "resume"})


def test_what_others_wrote_commands_no_terminal(supaclaw: Supaclaw, database: Ask) -> None:
    added(supaclaw)
    database(lambda tx: tx.execute("update schedules set prompt = $1", "a\x1b[2Jb\x9b1mc\nowner: me"))
    out = supaclaw("schedules", "show", "1").out
    assert not {"\x1b", "\x9b"} & set(out)
    assert "\nowner" not in out


def test_one_that_is_valid_no_more_is_shown_and_breaks_no_list(supaclaw: Supaclaw, database: Ask) -> None:
    added(supaclaw, "--at", "2035-01-01T09:00")
    added(supaclaw, "--cron", "0 9 * * *", name="broken")
    database(lambda tx: tx.execute("update schedules set zone = 'Mars/Olympus'"))
    database(lambda tx: tx.execute("update schedules set cron = '99 9 * * *' where cron is not null"))
    assert len(supaclaw("schedules", "list", "--json").json) == 2
    assert "which is not valid" in supaclaw("schedules", "show", "broken").out
    assert supaclaw("schedules", "pause", "broken").code == 0
    assert "Its time is no longer valid" in supaclaw("schedules", "resume", "broken").err
    assert supaclaw("schedules", "run", "broken").code == 0


def test_times_are_the_owners_own(supaclaw: Supaclaw, place: Path) -> None:
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}T12:00"
    added(supaclaw, "--at", tomorrow, name="a")
    (place / "data" / "workspace").mkdir(parents=True)
    (place / "data" / "workspace" / "USER.md").write_text("- Time zone: Asia/Tokyo\n")
    added(supaclaw, "--at", tomorrow, name="b")
    (place / "config.json").write_text('{"owner": {"timezone": "America/New_York"}}')
    added(supaclaw, "--at", tomorrow, name="c")
    words = {row["name"]: row["when"] for row in supaclaw("schedules", "list", "--json").json}
    assert [words[name].rpartition(" 12:00 ")[2] for name in "abc"] == ["UTC", "Asia/Tokyo", "America/New_York"]


def test_it_rests_goes_on_and_is_removed(supaclaw: Supaclaw) -> None:
    added(supaclaw, "--cron", "0 9 * * *")
    assert supaclaw("schedules", "pause", "1").out.endswith("; paused\n")
    assert supaclaw("schedules", "list", "--json").json == []
    [paused] = supaclaw("schedules", "list", "--all", "--json").json
    assert (paused["state"], paused["next_run_at"]) == ("paused", None)
    assert supaclaw("schedules", "resume", "stretch").code == 0
    assert supaclaw("schedules", "list", "--json").json[0]["next_run_at"] is not None
    assert supaclaw("schedules", "remove", "stretch").out.startswith("removed: 1: stretch")
    assert supaclaw("schedules", "list", "--all", "--json").json == []


def test_one_of_the_backlog_runs_when_it_is_told_to(supaclaw: Supaclaw, database: Ask) -> None:
    added(supaclaw)
    out = supaclaw("schedules", "run", "stretch").out
    assert out.startswith("queued: 1: stretch; backlog; no gateway is running")
    assert database(lambda tx: tx.fetchval("select count(*) from tasks where kind = 'agent'")) == 1
    [run] = supaclaw("schedules", "show", "1", "--json").json["runs"]
    assert (run["executed_at"], run["error"], run["missed"]) == (None, None, 0)
    assert run["task_id"] is not None
    assert "is running; wait" in supaclaw("schedules", "run", "1").err


def test_it_tells_on_the_channel_that_is_asked_for(supaclaw: Supaclaw, database: Ask) -> None:
    async def wrote(tx: Connection) -> int:
        owner = await principals.lock_owner(tx)
        session = await sessions.start(tx, owner.id, Label.OWNER)
        at = Address("telegram", "bot", "1")
        await addresses.add(tx, at, owner.id, session, private=True)
        found = await addresses.find(tx, at)
        assert found is not None
        await tx.execute(
            """insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, platform_time)
               values ($1, $2, 'telegram', 'bot', '1', 'm1', 'message', now())""",
            owner.id,
            found.id,
        )
        return found.id

    address = database(wrote)
    added(supaclaw, "--to", "telegram")
    assert database(lambda tx: tx.fetchval("select address_id from schedules")) == address
    refused = supaclaw("schedules", "add", "x", "--prompt", "y", "--to", "slack")
    assert refused.err == "supaclaw: you have not written on slack yet; channels with a chat: telegram\n"


def test_those_of_others_are_listed_under_their_names_and_reached_by_number_alone(
    supaclaw: Supaclaw, database: Ask
) -> None:
    async def add_one(tx: Connection) -> None:
        bob = await principals.add(tx, Role.MEMBER, "Bob", ["telegram:2"])
        definition = ScheduleDefinition("bobs", "x", None)
        await schedules.add(tx, bob, definition, next_run_at=None, origin="telegram", label=Label.OWNER)

    database(add_one)
    [listed] = supaclaw("schedules", "list", "--json").json
    assert (listed["name"], listed["of"]) == ("bobs", "Bob")
    assert "no schedule 'bobs'" in supaclaw("schedules", "pause", "bobs").err
    assert supaclaw("schedules", "show", "1", "--json").json["of"] == "Bob"
    assert supaclaw("schedules", "pause", "1").code == 0


@pytest.mark.parametrize(
    "call",
    [
        ("show", "7"),
        ("run", "nothing"),
        ("pause", "7"),
        ("resume", "7"),
        ("remove", "7"),
        ("add", "x", "--prompt", "y", "--at", "yesterday"),
        ("add", "x", "--prompt", "y", "--at", "2001-01-01T09:00"),
        ("add", "x", "--prompt", "y", "--at", "9999-12-31T23:59Z", "--zone", "Europe/Berlin"),
        ("add", "x", "--prompt", "y", "--cron", "* * * * * *"),
        ("add", "x", "--prompt", "y", "--cron", "0 9 * * *", "--zone", "Berlin"),
        ("add", "x", "--prompt", "y", "--at", "2099-01-01T09:00", "--cron", "0 9 * * *"),
        ("add", "x", "--prompt", ""),
    ],
)
def test_what_cannot_be_done_is_an_error_in_a_line(supaclaw: Supaclaw, call: tuple[str, ...]) -> None:
    done = supaclaw("schedules", *call)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith("supaclaw: ")
