"""The runs of a schedule begin with the plan that its person has confirmed once, and change nothing of it."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import ArgumentRole, ToolClass
from gateway.domain.json import Json, JsonObject
from gateway.domain.memory.erasing import Erasure
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.flow import approvals
from gateway.store.connection.pool import Database
from gateway.store.memory import erasing
from gateway.store.memory.erasing import Origins
from gateway.store.work import tasks
from gateway.store.work.schedules import ScheduleRow
from gateway.tools import plan as plan_tool
from tests.flow.appointments import fire, known, plan, trigger, work
from tests.flow.path import FakeModel, MessagePath, build, call, crash, in_turn, results, said
from tests.security.test_plans import BOB, EVE, READ, Office, answer, answered, waits

WHEN: JsonObject = {"step": 1, "field": "when"}
STEPS: list[Json] = [READ, {"tool": "send", "arguments": {"to": BOB["address"]}, "values": {"text": WHEN}}]
SENT: JsonObject = {"to": "bob@bob.example", "text": "at noon [from other people's text]"}


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.setattr(approvals, "TOGETHER_SECONDS", 0)
    return Office()


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel, office: Office) -> MessagePath:
    return await build(database, workspace, model, families=(office.tools, plan_tool.tools))


def planned(*steps: Json) -> ToolCall:
    return call("plan", steps=list(steps or STEPS), schedule="Stand-up")


async def confirmed(path: MessagePath, *steps: Json) -> ScheduleRow:
    """A schedule with this plan."""
    row = await plan(path, "Tell Bob when it begins.")
    assert waits((await answer(path, said("", planned(*steps))))[-1])
    await answered(path, "/approve A1", told="A1 (plan) was approved and has run")
    row = await known(path, row)
    assert row.plan
    return row


async def ran(path: MessagePath, row: ScheduleRow, *calls: ToolCall, days: int = 0) -> list[JsonObject]:
    """The results that its next run saw."""
    path.model.answer = in_turn(*[said("", each) for each in calls], said("done"))
    await fire(path, row, days)
    await work(path)
    return list(results(path.model.prompts[-1]))


async def test_it_is_confirmed_once_with_the_schedule_and_each_run_has_it_anew(
    path: MessagePath, office: Office
) -> None:
    row = await confirmed(path)
    [(preview,)] = await path.rows("select preview from reviews")
    assert preview.split("\n") == [
        f"Each run of schedule {row.id}: Stand-up",
        "every day at 08:30 Europe/Berlin (30 8 * * *)",
        "  Tell Bob when it begins.",
        "Step 1: read",
        "Step 2: send",
        "  to (recipient): bob@bob.example",
        "  text (content), by each run: when in step 1",
    ]
    assert "Each run of the schedule may make these calls without a question." in "".join(path.channel.texts)
    for day in range(2):
        found = await ran(path, row, call("read"), call("send", to=EVE), call("send"), call("send"), days=day)
        assert ["ok" in each for each in found] == [False, False, True, False]
        assert office.sent == [SENT] * (day + 1)
    assert '"tool": "send"' in str(path.model.prompts[-1].messages)
    assert (await known(path, row)).plan


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([READ, {"tool": "send", "values": {"to": WHEN}}], "not_open"),
        ([READ, {"tool": "send", "values": {"other": WHEN}}], "not_open"),
        ([{"tool": "nothing"}], "unknown_tool"),
        ([{"tool": "send", "arguments": {"text": "x" * 3_000}}], "too_long"),
    ],
)
async def test_what_a_schedule_cannot_plan_is_refused(path: MessagePath, steps: list[Json], error: str) -> None:
    await plan(path)
    assert (await answer(path, said("", planned(*steps))))[-1]["error"] == error


@pytest.mark.parametrize("label", [Label.KNOWN, Label.UNTRUSTED])
async def test_others_words_have_no_plan(path: MessagePath, label: Label) -> None:
    await plan(path, label=label)
    assert (await answer(path, said("", planned())))[-1]["error"] == "not_own"
    found = await answer(path, said("", call("read")), said("", planned()))
    assert found[-1]["error"] == "too_late"


async def test_without_its_persons_yes_there_is_none(path: MessagePath, office: Office) -> None:
    row = await plan(path)
    await answer(path, said("", planned()))
    assert waits((await ran(path, row, call("read"), call("send", to=BOB["address"])))[-1])
    await answered(path, "/deny A1")
    assert (await known(path, row)).plan is None
    assert office.sent == []


async def test_a_schedule_or_tool_that_changed_since_the_question_voids_the_yes(path: MessagePath) -> None:
    row = await plan(path)
    await answer(path, said("", planned()))
    await path.rows("update schedules set prompt = 'Tell Eve.' returning id")
    await answered(path, "/approve A1", told="different now")
    assert (await known(path, row)).plan is None


@pytest.mark.parametrize(
    "change",
    ["prompt = 'Tell Eve.'", "cron = '* * * * *'", "label = 2", "plan = null", "name = 'Other'", "zone = 'UTC'"],
)
async def test_a_change_of_the_schedule_voids_it(path: MessagePath, office: Office, change: str) -> None:
    row = await confirmed(path)
    await path.rows(f"update schedules set {change} returning id")
    assert waits((await ran(path, row, call("read"), call("send", to=BOB["address"])))[-1])
    assert office.sent == []


async def test_one_whose_words_are_erased_is_none(path: MessagePath) -> None:
    row = await confirmed(path)
    async with path.database.transaction() as tx:
        await erasing.erase(tx, Erasure(["bob.example"], []), Origins({}, {}, frozenset()))
    assert (await known(path, row)).plan is None


async def test_a_pause_keeps_it(path: MessagePath) -> None:
    row = await confirmed(path)
    await path.rows("update schedules set paused_at = now(), next_run_at = null returning id")
    assert (await known(path, row)).plan


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("send", {"description": "Sends it to all."}),
        ("send", {"kind": ToolClass.SEND}),
        ("send", {"roles": {"to": ArgumentRole.RECIPIENT, "text": ArgumentRole.TIME}}),
        ("read", {"description": "Reads other mail."}),
    ],
)
async def test_a_tool_that_changed_voids_it(path: MessagePath, office: Office, name: str, change: Any) -> None:
    row = await confirmed(path)
    toolbox = path.environments.of(path.people.owner.id).toolbox
    toolbox._tools[name] = replace(toolbox._tools[name], **change)
    assert waits((await ran(path, row, call("read"), call("send", to=BOB["address"])))[-1])
    assert office.sent == []


@pytest.mark.parametrize("text", [EVE, "call 0151 12345678", "x" * 2_001, ""])
async def test_what_a_run_reads_is_plain_content_or_asks(path: MessagePath, office: Office, text: str) -> None:
    row = await confirmed(path)
    office.mail["when"] = text
    found = (await ran(path, row, call("read"), call("send")))[-1]
    assert waits(found) or found["error"] == "plan_stopped"
    assert office.sent == []


async def test_another_run_of_any_kind_has_none(path: MessagePath, office: Office) -> None:
    row = await confirmed(path)
    path.model.answer = in_turn(said("", call("read")), said("", call("send", to=BOB["address"])), said("done"))
    await trigger(path, "disk full", private=True, schedule=row.id)  # it names the schedule, but is none of its runs
    await work(path)
    assert office.sent == []


async def test_a_killed_run_goes_on_with_it(path: MessagePath, office: Office) -> None:
    row = await confirmed(path)
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    office.during = hang
    path.model.answer = in_turn(said("", call("read")))
    await fire(path, row)
    running = asyncio.create_task(path.agent.run(await path.claim(Lane.AGENTS)))
    await reached.wait()
    await crash(running)
    office.during = None
    families = (office.tools, plan_tool.tools)
    again = await build(path.database, path.workspace, FakeModel(), path.instance, families=families)
    async with path.database.connection() as conn:
        await tasks.died(conn, path.instance)
    again.model.answer = in_turn(said("", call("send")), said("", call("send")), said("done"))
    await work(again)
    assert office.sent == [SENT]
    assert waits(results(again.model.prompts[-1])[-1])


async def test_it_is_void_in_a_run_that_has_begun(path: MessagePath, office: Office) -> None:
    row = await confirmed(path)

    async def change() -> None:
        await path.rows("update schedules set prompt = 'Tell Eve.' returning id")

    office.during = change
    assert waits((await ran(path, row, call("read"), call("send", to=BOB["address"])))[-1])
    assert office.sent == []
