"""The screen Schedules over real HTTP: add, preview, run, pause, change and delete; the owner's only."""

from datetime import UTC, datetime

import pytest

from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.domain.work.schedules import Recurring
from gateway.store.people import principals
from gateway.store.work import schedules
from gateway.store.work.schedules import ScheduleRow
from gateway.timetable.schedules import ScheduleChanges, define, next_slot
from gateway.timetable.wording import moment
from gateway.web.screens.schedules import ScheduleTimes
from tests.web.conftest import BEARER, Web

DAILY = {"name": "<b>stretch</b>", "prompt": "Remind me.", "cron_expr": "30 8 * * *", "timezone": "Asia/Tokyo"}


async def listed(web: Web) -> list[ScheduleRow]:
    async with web.path.database.connection() as conn:
        return await schedules.listed(conn, None, everything=True)


async def test_one_is_added_run_paused_changed_and_deleted(web: Web) -> None:
    async with web.sign_in() as browser:
        assert "Nothing is scheduled" in (await browser.get("/schedules")).text
        assert (await browser.post("/schedules", data=DAILY)).status_code == 204
        [row] = await listed(web)
        shown = (await browser.get("/schedules")).text
        assert "every day at 08:30 Asia/Tokyo (30 8 * * *)" in shown
        assert row.next_run_at is not None
        assert f"next {moment(row.next_run_at, 'Asia/Tokyo')}" in shown
        assert "<b>stretch" not in shown

        web.model.says("Stretch!")
        assert (await browser.post(f"/schedules/{row.id}/run")).status_code == 204
        again = await browser.post(f"/schedules/{row.id}/run")
        assert again.status_code in (204, 409), "unless it was that quick"
        assert (await browser.post(f"/schedules/{row.id}/pause")).status_code == 204
        assert "paused" in (await browser.get("/schedules")).text
        assert (await browser.post(f"/schedules/{row.id}/resume")).status_code == 204
        change = DAILY | {"cron_expr": "0 9 * * 1-5", "timezone": "Europe/Berlin"}
        assert (await browser.post(f"/schedules/{row.id}", data=change)).status_code == 204
        details = (await browser.get(f"/schedules/{row.id}/details")).text
        assert "every weekday at 09:00 Europe/Berlin" in details
        assert '<option value="weekday" selected>' in details
        assert 'type="time" name="time" value="09:00"' in details
        assert details.count("<li>") >= 6
        assert "Planned calls" not in details
        steps: list[Json] = [{"tool": "send", "arguments": {"to": "bob@b.example"}, "values": {"text": {"step": 1}}}]
        async with web.path.database.transaction() as tx:
            await schedules.set_plan(tx, row.id, {"arguments": {"steps": steps}, "result": {}})
        details = (await browser.get(f"/schedules/{row.id}/details")).text
        assert "to: bob@b.example" in details
        assert "<bdi>text</bdi>: by each run" in details
        assert (await browser.post(f"/schedules/{row.id}/remove")).status_code == 204
        assert await listed(web) == []


@pytest.mark.parametrize(
    ("choices", "cron"),
    [
        ({"every": "day", "time": "08:05"}, "5 8 * * *"),
        ({"every": "weekday"}, "0 9 * * 1-5"),
        ({"every": "week", "weekday": "7"}, "0 9 * * 7"),
        ({"every": "month", "day": "L", "time": "00:00"}, "0 0 L * *"),
        ({"every": "place", "weekday": "1", "place": "1"}, "0 9 * * 1#1"),
        ({"every": "place", "weekday": "5", "place": "L"}, "0 9 * * L5"),
        ({"every": "cron", "cron_expr": "*/15 8-18 * * 1-5"}, "*/15 8-18 * * 1-5"),
    ],
)
def test_choices_become_cron_fields_and_are_chosen_again_on_the_next_edit(choices: dict[str, str], cron: str) -> None:
    times, now = ScheduleTimes.model_validate(choices), datetime.now(UTC)
    definition = define(now=now, zone=None, **ScheduleChanges(name="-", prompt="-", **times.changes))
    assert definition.when == Recurring(cron)
    assert ScheduleTimes.of(definition).changes == {**times.changes, "timezone": "UTC"}


async def test_a_date_is_picked_and_the_first_monday_chosen(web: Web) -> None:
    once = {"name": "once", "prompt": "Hi.", "every": "once", "time": "07:30", "timezone": "Asia/Tokyo"}
    async with web.sign_in() as browser:
        refused = await browser.post("/schedules", data=once)
        assert (refused.status_code, await listed(web)) == (409, [])
        assert (await browser.post("/schedules", data=once | {"date": "2030-01-02"})).status_code == 204
        assert "<small>once, Wed 2 Jan 2030 07:30 Asia/Tokyo</small>" in (await browser.get("/schedules")).text
        shown = (await browser.get("/schedules/next", params={"every": "place", "timezone": "UTC"})).text
        assert "on the first Monday of the month at 09:00 UTC" in shown
        assert (await browser.get("/schedules/next", params={"every": "day", "time": ""})).status_code == 400


async def test_the_next_five_are_shown_while_a_cron_is_typed(web: Web) -> None:
    async with web.sign_in() as browser:
        typed = {"cron_expr": "0 12 29 2 *", "timezone": "UTC"}
        shown = (await browser.get("/schedules/next", params=typed)).text
        assert shown.count("<li>") == 5
        assert "every year on 29 Feb at 12:00 UTC" in shown
        shown = (await browser.get("/schedules/next", params={"run_at": "in 20 minutes"})).text
        assert shown.count("<li>") == 1
        for wrong, told in (
            ({"cron_expr": "61 * * * *"}, "cron_expr: "),
            ({"cron_expr": "* * * * *", "timezone": "Mars"}, "not an IANA time zone"),
            ({"cron_expr": "* * * * *", "run_at": "in 5 minutes"}, "not both"),
        ):
            assert told in (await browser.get("/schedules/next", params=wrong)).text
        assert "only runs when you run it" in (await browser.get("/schedules/next")).text


async def test_what_is_wrong_is_told_and_nothing_changes(web: Web) -> None:
    async with web.sign_in() as browser:
        refused = await browser.post("/schedules", data=DAILY | {"cron_expr": "every day"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "refused")
        assert (await browser.post("/schedules/7/pause")).json()["error"]["message"].startswith("There is no schedule")
        assert (await browser.get("/schedules/7/details")).status_code == 404
    assert await listed(web) == []


async def test_a_members_is_told_apart_and_only_the_owners_browser_sees_any(web: Web) -> None:
    now = datetime.now(UTC)
    tea = define(now=now, zone=None, name="tea", prompt="Tea.", cron_expr="0 16 * * *")
    async with web.path.database.transaction() as tx:
        grace = await principals.ensure_member(tx, "Grace", "telegram:7")
        row = await schedules.add(tx, grace, tea, next_run_at=next_slot(tea, now), origin="telegram", label=Label.OWNER)
    assert row is not None
    async with web.sign_in() as browser:
        assert "of <bdi>Grace</bdi>" in (await browser.get("/schedules")).text
    assert (await web.client.get("/schedules")).headers["location"] == "/login"
    for path in ("/schedules/events", "/schedules/next", f"/schedules/{row.id}/details"):
        assert (await web.client.get(path, headers=BEARER)).status_code == 401
    for path in ("/schedules", f"/schedules/{row.id}", f"/schedules/{row.id}/remove"):
        answer = await web.client.post(path, data=DAILY, headers={**BEARER, "Origin": web.url})
        assert answer.status_code == 401
