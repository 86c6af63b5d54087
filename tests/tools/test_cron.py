"""The tool that keeps schedules, on a real database, as a model uses it."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.agent.policy import Policy
from gateway.agent.toolbox import Toolbox, ToolOutcome
from gateway.agent.work.schedules import MOST_SCHEDULES, SHOWN
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import Caller, Effect, Labelled, ToolFailed
from gateway.domain.ids import PrincipalId, SessionId, TaskId
from gateway.domain.principals import Label, Role
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.timetable.schedules import InvalidSchedule
from gateway.tools import PrincipalContext, Services
from gateway.tools.cron import CronArguments, tools, until
from gateway.workspace.files.tree import Workspace
from tests.fakes.caller import unfenced
from tests.fakes.toolboxes import toolbox_of
from tests.store.world import World, found

NOW = datetime(2026, 11, 21, 22, 2, tzinfo=UTC)


@dataclass
class Clock:
    at: datetime = NOW

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


async def spill(name: str, _text: str, _label: Label) -> str:
    return name


@dataclass
class Person:
    """Somebody for whom the agent works, and a run that works for them."""

    context: PrincipalContext
    caller: Caller
    clock: Clock = field(default_factory=Clock)
    calls: int = 0
    own: Label = Label.OWNER

    @property
    def toolbox(self) -> Toolbox:
        return toolbox_of(tools(Services(Workspace(Path()), context=self.context)), spill, Policy(self.own))

    async def run(self, caller: Caller, **arguments: object) -> ToolOutcome:
        return await self.toolbox.run(ToolCall("1", "cron", json.dumps(arguments)), caller)

    async def call(self, **arguments: object) -> dict[str, Any]:
        """A call of its own."""
        self.calls += 1
        outcome = await self.run(replace(self.caller, ordinal=self.calls), **arguments)
        answer: dict[str, Any] = json.loads(outcome.text)
        assert outcome.failed == ("error" in answer)
        return answer

    async def names(self, **arguments: object) -> list[str]:
        return [each["name"] for each in (await self.call(action="list", **arguments))["schedules"]]


@pytest.fixture
async def world(database: Database) -> World:
    return await found(database)


def person(world: World, database: Database, principal: PrincipalId, role: Role, zone: str | None) -> Person:
    clock = Clock()
    context = PrincipalContext(principal, role, database.run, clock, lambda: zone)
    caller = Caller(TaskId(uuid4()), 0, world.session, world.address, Label.OWNER, unfenced, unfenced)
    return Person(context, caller, clock)


@pytest.fixture
def ada(world: World) -> Person:
    """The owner, in Berlin."""
    return person(world, world.database, world.principal, Role.OWNER, "Europe/Berlin")


async def member(world: World, name: str) -> Person:
    async with world.database.transaction() as tx:
        principal = await principals.add(tx, Role.MEMBER, name, [f"fake:{name}"])
    someone = person(world, world.database.bound(principal), principal, Role.MEMBER, "Europe/Paris")
    someone.caller = replace(someone.caller, address=None, label=Label.KNOWN)
    someone.own = Label.KNOWN
    return someone


ONCE = {"name": "call mum", "run_at": "2026-11-22T09:00", "prompt": "Remind the user to call mum."}
DAILY = {"name": "stretch", "cron_expr": "30 8 * * 1-5", "prompt": "Remind the user to stretch."}


class TestAdding:
    async def test_a_reminder_is_confirmed_in_the_users_zone(self, ada: Person) -> None:
        assert await ada.call(action="add", schedule_type="once", **ONCE) == {
            "id": 1,
            "name": "call mum",
            "in_words": "once, Sun 22 Nov 2026 09:00 Europe/Berlin",
            "next_run": "Sun 22 Nov 2026 09:00 Europe/Berlin",
            "next_run_at": "2026-11-22T09:00:00+01:00",
            "in": "9 hours 58 minutes",
        }

    async def test_a_delay_counts_from_the_message_and_needs_no_zone(self, world: World) -> None:
        nowhere = person(world, world.database, world.principal, Role.OWNER, None)
        sent_at = NOW - timedelta(seconds=40)
        async with world.database.transaction() as tx:
            await tx.execute(
                """insert into messages (session_id, principal_id, kind, text, label, origin, sent_at, seq)
                   values ($1, $2, 'user', 'in 20 minutes', 0, 'fake', $3, 1000)""",
                world.session,
                world.principal,
                sent_at,
            )
        added = await nowhere.call(action="add", **{**ONCE, "run_at": "in 20 minutes"})

        assert added["next_run_at"] == (sent_at + timedelta(minutes=20)).isoformat()
        assert "note" not in added
        nowhere.caller = replace(nowhere.caller, address=None)
        added = await nowhere.call(action="add", **{**ONCE, "name": "unattended", "run_at": "in 20 minutes"})
        assert added["next_run_at"] == (NOW + timedelta(minutes=20)).isoformat()

    async def test_recurring_work_elsewhere_is_told_in_both_zones(self, ada: Person) -> None:
        added = await ada.call(action="add", schedule_type="recurring", timezone="America/New_York", **DAILY)
        assert "America/New_York" in added["in_words"]
        assert added["next_run"] == "Mon 23 Nov 2026 14:30 Europe/Berlin"
        assert added["next_run_at"] == "2026-11-23T14:30:00+01:00"

    async def test_it_knows_where_and_by_whom_it_was_asked_for(self, ada: Person, world: World) -> None:
        ada.caller, ada.own = replace(ada.caller, label=Label.UNTRUSTED), Label.UNTRUSTED
        await ada.call(action="add", **ONCE)
        async with world.database.connection() as conn:
            row = await conn.fetchrow("select principal_id, address_id, label, origin, asked_by from schedules")
        key = f"{ada.caller.task}/1"
        assert tuple(row) == (world.principal, world.address, Label.UNTRUSTED, "fake", key)

    async def test_without_a_time_it_waits_in_the_backlog(self, ada: Person) -> None:
        added = await ada.call(action="add", name="someday", prompt="Tidy up.", schedule_type=None)
        assert added == {"id": 1, "name": "someday", "in_words": "backlog"}

    async def test_one_can_be_added_that_rests(self, ada: Person) -> None:
        added = await ada.call(action="add", enabled=False, **DAILY)
        assert added["paused"] is True
        assert "next_run" not in added

    async def test_a_call_that_is_repeated_adds_nothing_even_after_its_time(self, ada: Person) -> None:
        first = await ada.run(ada.caller, action="add", **ONCE)
        ada.clock.at += timedelta(days=2)
        again = await ada.run(ada.caller, action="add", **ONCE)
        assert (json.loads(again.text)["id"], again.failed) == (json.loads(first.text)["id"], False)
        assert await ada.names() == ["call mum"]
        assert ada.toolbox.effect("cron") is Effect.IDEMPOTENT

    @pytest.mark.parametrize(
        ("said", "assumed"),
        [
            ({"run_at": "2026-11-22T09:00"}, True),
            ({"cron_expr": "0 9 * * *"}, True),
            ({"run_at": "2026-11-22T09:00Z"}, False),
            ({"run_at": "2026-11-22T09:00:00+01:00"}, False),
            ({"run_at": "2026-11-22T09:00-0500"}, False),
            ({"run_at": "2026-11-22T09:00", "timezone": "Asia/Tokyo"}, False),
            ({}, False),
        ],
    )
    async def test_where_no_zone_is_known_it_is_asked_for_only_if_it_matters(
        self, ada: Person, said: dict[str, str], assumed: bool
    ) -> None:
        ada.context = replace(ada.context, zone=lambda: None)
        added = await ada.call(action="add", name="x", prompt="y", **said)
        assert ("note" in added) is assumed
        assert ("UTC is used" in str(added)) is assumed

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            ({"run_at": "2026-02-30T09:00"}, "2026-02-30T09:00"),
            ({"run_at": "2026-13-01T09:00"}, "2026-13-01T09:00"),
            ({"run_at": "2027-03-28T02:30"}, "put forward"),
            ({"run_at": "tomorrow"}, "2027-03-01T09:00"),
            ({"run_at": "2026-11-21T22:00"}, "in the past"),
            ({"run_at": "2126-11-21T22:00"}, "10 years"),
            ({"run_at": "2026-11-22T09:00", "cron_expr": "0 9 * * *"}, "not both"),
            ({"schedule_type": "once"}, "run_at"),
            ({"schedule_type": "recurring"}, "cron_expr"),
            ({"cron_expr": "0 0 9 * * *"}, "5"),
            ({"cron_expr": "0 9 30 2 *"}, "never"),
            ({"cron_expr": "99 9 * * *"}, "cron_expr"),
            ({"cron_expr": "0 9 * * *", "timezone": "Berlin"}, "Europe/Berlin"),
            ({"cron_expr": "0 9 * * *", "timezone": "Mars/Olympus"}, "Mars/Olympus"),
            ({"run_at": "2026-11-22T09:00", "name": "x" * 81}, "name"),
            ({"run_at": "2026-11-22T09:00", "prompt": "x" * 4001}, "prompt"),
            ({"run_at": "2026-11-22T09:00", "prompt": " "}, "prompt"),
        ],
    )
    async def test_what_cannot_be_is_refused_in_one_line_that_says_why(
        self, ada: Person, said: dict[str, str], told: str
    ) -> None:
        answer = await ada.call(action="add", **{"name": "x", "prompt": "y", **said})
        assert answer["error"] == "refused"
        assert told in answer["message"]
        assert "\n" not in answer["message"]
        assert await ada.names(all=True) == []

    async def test_a_name_that_is_taken_leads_to_the_one_that_has_it(self, ada: Person) -> None:
        await ada.call(action="add", **ONCE)
        answer = await ada.call(action="add", **{**DAILY, "name": "Call Mum"})
        assert "already exists: number 1" in answer["message"]


class TestChanging:
    async def test_only_what_is_said_changes(self, ada: Person) -> None:
        await ada.call(action="add", **DAILY)
        changed = await ada.call(action="update", id="stretch", cron_expr="0 9 * * *", name="", prompt=None)
        assert (changed["name"], changed["next_run"]) == ("stretch", "Sun 22 Nov 2026 09:00 Europe/Berlin")
        assert (await ada.call(action="update", id=1, name="yoga"))["name"] == "yoga"
        assert (await ada.call(action="list"))["schedules"][0]["prompt"] == DAILY["prompt"]

    async def test_a_name_alone_says_which_is_meant(self, ada: Person) -> None:
        await ada.call(action="add", **DAILY)
        assert (await ada.call(action="update", name="stretch", cron_expr="0 9 * * *"))["name"] == "stretch"
        assert await ada.call(action="remove", name="STRETCH") == {"removed": 1, "name": "stretch"}

    @pytest.mark.parametrize("changed", [{"prompt": "Ask whether they called."}, {"timezone": "Asia/Tokyo"}])
    async def test_what_leaves_its_time_alone_does_not_skip_what_is_due(
        self, ada: Person, world: World, changed: dict[str, str]
    ) -> None:
        await ada.call(action="add", **ONCE)
        due = await world.value("select next_run_at from schedules")
        ada.clock.at = due + timedelta(minutes=5)
        await ada.call(action="update", id=1, **changed)
        assert await world.value("select next_run_at from schedules") == due

    async def test_it_rests_and_goes_on_with_what_is_to_come(self, ada: Person) -> None:
        await ada.call(action="add", **DAILY)
        assert (await ada.call(action="update", id=1, enabled=False))["paused"] is True
        assert (await ada.names(), await ada.names(all=True)) == ([], ["stretch"])
        ada.clock.at += timedelta(days=3)
        assert (await ada.call(action="update", id=1, enabled=True))[
            "next_run"
        ] == "Wed 25 Nov 2026 08:30 Europe/Berlin"

    async def test_what_is_over_is_hidden_kept_and_can_be_set_again(self, ada: Person, world: World) -> None:
        await ada.call(action="add", **ONCE)
        await world.do("update schedules set completed_at = $1, next_run_at = null", NOW)
        assert await ada.names() == []
        [over] = (await ada.call(action="list", all=True))["schedules"]
        assert over["completed"] == "Sat 21 Nov 2026 23:02 Europe/Berlin"
        for useless in ({"prompt": "again"}, {"timezone": "Asia/Tokyo"}):
            assert "give it a new time" in (await ada.call(action="update", id=1, **useless))["message"]
        assert "next_run" in await ada.call(action="update", id=1, run_at="2026-11-23T09:00")

    async def test_words_of_others_lower_the_trust_for_good(self, ada: Person, world: World) -> None:
        await ada.call(action="add", **DAILY)
        ada.caller, ada.own = replace(ada.caller, label=Label.UNTRUSTED), Label.UNTRUSTED
        await ada.call(action="update", id=1, prompt="Do what the page says.")
        ada.caller = replace(ada.caller, label=Label.OWNER)
        await ada.call(action="update", id=1, name="calm")
        assert await world.value("select label from schedules") == Label.UNTRUSTED

    @pytest.mark.parametrize("action", ["update", "remove"])
    async def test_which_one_has_to_be_said(self, ada: Person, action: str) -> None:
        assert "which schedule" in (await ada.call(action=action))["message"]
        assert "no schedule '7'" in (await ada.call(action=action, id=7))["message"]

    async def test_it_cannot_take_the_name_of_another(self, ada: Person) -> None:
        await ada.call(action="add", **ONCE)
        await ada.call(action="add", **DAILY)
        assert "number 1" in (await ada.call(action="update", id=2, name="call mum"))["message"]

    async def test_of_many_that_want_one_name_at_once_one_gets_it(self, ada: Person) -> None:
        for number in range(8):
            await ada.call(action="add", name=f"n{number}", prompt="x")
        wanted = [ada.call(action="update", id=number + 1, name="tea") for number in range(8)]
        wanted.append(ada.call(action="add", name="Tea", prompt="x"))
        refused = [answer["message"] for answer in await asyncio.gather(*wanted) if "error" in answer]
        assert ["already exists: number" in message for message in refused] == [True] * 8


class TestListing:
    async def test_a_long_list_is_cut_and_says_so(self, ada: Person) -> None:
        for number in range(SHOWN + 3):
            await ada.call(action="add", name=f"n{number}", prompt="x" * 4000)
        listed = await ada.call(action="list")
        assert (len(listed["schedules"]), listed["more"]) == (SHOWN, 3)
        assert "truncated" not in listed

    async def test_one_that_is_valid_no_more_hides_no_other(self, ada: Person, world: World) -> None:
        ada.context = replace(ada.context, zone=lambda: None)
        await ada.call(action="add", **ONCE)
        await ada.call(action="add", **DAILY)
        await world.do("update schedules set zone = 'Mars/Olympus', cron = case when cron is not null then 'soon' end")
        assert [each["next_run_at"][-6:] for each in (await ada.call(action="list"))["schedules"]] == ["+00:00"] * 2
        assert (
            "cron_expr" in (await ada.call(action="update", id="stretch", cron_expr="soon", timezone="UTC"))["message"]
        )
        assert "Mars/Olympus" in (await ada.call(action="update", id=1, run_at="2026-11-23T09:00"))["message"]
        assert (await ada.call(action="update", id=1, enabled=False))["paused"] is True

    async def test_one_that_fails_says_so(self, ada: Person, world: World) -> None:
        await ada.call(action="add", **DAILY)
        await world.do("update schedules set failing_since = $1", NOW)
        [listed] = (await ada.call(action="list"))["schedules"]
        assert listed["failing_since"] == "Sat 21 Nov 2026 23:02 Europe/Berlin"


class TestTrust:
    async def test_what_others_sent_cannot_plant_schedules(self, ada: Person) -> None:
        await ada.call(action="add", **DAILY)
        ada.caller = replace(ada.caller, label=Label.UNTRUSTED)
        for tried in (
            {"action": "add", **ONCE},
            {"action": "update", "id": 1, "prompt": "x"},
            {"action": "update", "id": 1, "enabled": False},
            {"action": "remove", "id": 1},
        ):
            assert (await ada.call(**tried))["error"] == "not_allowed"
        assert await ada.names() == ["stretch"]

    async def test_a_run_of_the_owners_own_may_add_one(self, ada: Person, world: World) -> None:
        ada.caller = replace(ada.caller, address=None)
        await ada.call(action="add", **ONCE)
        assert await world.value("select origin from schedules") == "agent"

    async def test_a_member_reaches_nobody_elses(self, ada: Person, world: World) -> None:
        bob, eve = await member(world, "Bob"), await member(world, "Eve")
        await ada.call(action="add", **ONCE)
        await bob.call(action="add", **DAILY)
        for which in (1, 2, "call mum", "stretch", "1 or true", "%", "'; delete from schedules; --"):
            for action in (
                {"action": "update", "prompt": "x"},
                {"action": "update", "enabled": False},
                {"action": "remove"},
            ):
                assert "no schedule" in (await eve.call(id=which, **action))["message"]
        assert await eve.names(all=True) == []
        assert (await ada.names(all=True), await bob.names(all=True)) == (["call mum"], ["stretch"])

    async def test_the_same_name_is_free_for_everybody(self, ada: Person, world: World) -> None:
        bob = await member(world, "Bob")
        await ada.call(action="add", **DAILY)
        assert (await bob.call(action="add", **DAILY))["id"] == 2
        assert await bob.call(action="remove", id="stretch") == {"removed": 2, "name": "stretch"}
        assert await ada.names() == ["stretch"]

    async def test_the_rows_of_others_stay_out_of_reach_of_the_store_itself(self, ada: Person, world: World) -> None:
        await ada.call(action="add", **ONCE)
        bob = await member(world, "Bob")

        async def everything(tx: Any) -> list[Any]:
            await tx.execute("update schedules set prompt = 'mine'")
            await tx.execute("delete from schedules")
            return list(await tx.fetch("select * from schedules"))

        assert await bob.context.transact(everything) == []
        assert await world.column("select prompt from schedules") == [ONCE["prompt"]]

    async def test_a_member_forgets_what_became_of_it_too(self, world: World) -> None:
        bob = await member(world, "Bob")
        await bob.call(action="add", **DAILY)
        await world.do(
            "insert into schedule_runs (schedule_id, slot, principal_id) select id, now(), principal_id from schedules"
        )
        assert (await bob.call(action="remove", id="1"))["removed"] == 1
        assert await world.value("select count(*) from schedule_runs") == 0

    async def test_a_member_has_so_many_and_no_more_however_many_calls_come_at_once(self, world: World) -> None:
        bob = await member(world, "Bob")
        many = [bob.call(action="add", name=f"n{n}", prompt="x") for n in range(MOST_SCHEDULES + 4)]
        refused = [answer for answer in await asyncio.gather(*many) if "error" in answer]
        assert (len(refused), len(await bob.names())) == (4, MOST_SCHEDULES)
        assert "remove one first" in refused[0]["message"]

    async def test_what_is_over_leaves_room_until_it_begins_again(self, world: World) -> None:
        bob = await member(world, "Bob")
        await bob.call(action="add", **ONCE)
        await world.do("update schedules set completed_at = $1", NOW)
        for number in range(MOST_SCHEDULES):
            assert "id" in await bob.call(action="add", name=f"n{number}", prompt="x")
        again = await bob.call(action="update", id=1, run_at="2026-11-23T09:00")
        assert "remove one first" in again["message"]

    async def test_the_owner_has_as_many_as_wanted(self, ada: Person) -> None:
        for number in range(MOST_SCHEDULES + 1):
            assert "id" in await ada.call(action="add", name=f"n{number}", prompt="x")


WORDS = st.text() | st.sampled_from(
    ["1", "stretch", "2026-11-22T09:00", "0 9 * * *", "Europe/Berlin", "\x00", "\ud800"]
)
GARBAGE = st.fixed_dictionaries(
    {"action": st.sampled_from(["list", "add", "update", "remove"])},
    optional={
        **dict.fromkeys(("id", "name", "run_at", "cron_expr", "timezone", "prompt"), st.none() | WORDS | st.integers()),
        "schedule_type": st.none() | st.sampled_from(["once", "recurring"]),
        "misfire": st.none() | st.sampled_from(["run_once", "skip", "catch_up"]),
        **dict.fromkeys(("include_session_history", "enabled", "all"), st.none() | st.booleans()),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(given_arguments=st.lists(GARBAGE, min_size=1, max_size=3))
def test_garbage_is_answered_and_breaks_nothing(dsn: str, given_arguments: Sequence[dict[str, Any]]) -> None:
    async def tried() -> None:
        async with await Database.connect(dsn, size=1) as database:
            async with database.transaction() as tx:
                principal = await principals.add(tx, Role.MEMBER, "Eve", [str(uuid4())])
            context = PrincipalContext(principal, Role.MEMBER, database.bound(principal).run, Clock(), lambda: None)
            [tool] = tools(Services(Workspace(Path()), context=context))
            for ordinal, arguments in enumerate(given_arguments):
                caller = Caller(TaskId(uuid4()), ordinal, SessionId(UUID(int=1)), None, Label.KNOWN, unfenced, unfenced)
                try:
                    said = CronArguments.model_validate(arguments)
                except ValueError:
                    continue
                with suppress(ToolFailed, InvalidSchedule):
                    found = await tool.run(said, caller)
                    assert isinstance(found, Labelled)
                    json.dumps(found.result)

    asyncio.run(tried())


def test_how_long_until_then() -> None:
    lengths = (20, 29, 31, 90, 3600, 86_400 + 7200 + 60, -5)
    assert [until(timedelta(seconds=seconds)) for seconds in lengths] == [
        "less than a minute",
        "less than a minute",
        "1 minute",
        "2 minutes",
        "1 hour",
        "1 day 2 hours",
        "less than a minute",
    ]


async def test_where_there_is_no_store_it_says_so() -> None:
    caller = Caller(TaskId(UUID(int=1)), 0, SessionId(UUID(int=1)), None, Label.OWNER, unfenced, unfenced)
    toolbox = toolbox_of(tools(Services(Workspace(Path()))), spill)
    assert (
        json.loads((await toolbox.run(ToolCall("1", "cron", '{"action": "list"}'), caller)).text)["error"]
        == "unavailable"
    )


def test_it_takes_little_of_the_prompt() -> None:
    [spec] = toolbox_of(tools(Services(Workspace(Path()))), spill).specs
    assert spec.tokens <= 350
