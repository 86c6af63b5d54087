"""Programs propose schedules, and the owner decides."""

import httpx
import pytest

from gateway.store.people import tokens
from tests.journeys.process import until
from tests.web.conftest import BEARER, Web
from tests.web.test_tasks import Headers, bearer, stored

SCHEDULES = "select prompt from schedules"
ROME = {"name": "Rome", "prompt": "Look for trains.", "cron_expr": "0 9 * * 1", "timezone": "Europe/Rome"}


async def propose(web: Web, headers: Headers, **more: object) -> httpx.Response:
    return await web.client.post("/api/schedules", json={**ROME, **more}, headers=headers)


async def test_nothing_is_made_before_the_owners_yes(web: Web) -> None:
    _, plain = await tokens.create(web.backend.database, web.backend.owner.id, "planner", ["trigger"])
    proposed = (await propose(web, {"Authorization": f"Bearer {plain}"})).json()
    number = proposed["waiting_for_approval"]
    assert await web.path.rows(SCHEDULES) == []
    async with web.sign_in() as browser:
        shown = (await browser.get("/inbox")).text
        assert "The program &#34;planner&#34; proposes this schedule." in shown
        assert "A program asks, not your agent." in shown
        assert "Look for trains." in shown
        assert (await browser.post(f"/approvals/{number}/approve", data={})).status_code == 204
    await until(lambda: stored(web, SCHEDULES, "Look for trains."))


async def test_a_client_may_fill_in_the_defaults(web: Web) -> None:
    assert (await propose(web, BEARER, run_at="", timezone="")).status_code == 202


async def test_a_no_makes_nothing(web: Web) -> None:
    number = (await propose(web, BEARER)).json()["waiting_for_approval"]
    async with web.sign_in() as browser:
        assert (await browser.post(f"/approvals/{number}/deny", data={})).status_code == 204
    await until(lambda: stored(web, "select status from tasks where kind = 'approval'", "completed"))
    assert await web.path.rows("select state from reviews") == [("denied",)]
    assert await web.path.rows(SCHEDULES) == []


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        ({"cron_expr": "61 9 * * 1"}, 409, "minute"),
        ({"timezone": "Rome"}, 409, "Rome"),
        ({"cron_expr": None}, 409, "run_at"),
        ({"action": "remove"}, 400, "action"),
        ({"cron_expr": None, "run_at": "in 20 minutes"}, 400, "run_at"),  # from when on?
        ({"prompt": ""}, 400, "prompt"),
    ],
)
async def test_what_is_no_schedule_is_refused_at_once(
    web: Web, more: dict[str, object], status: int, says: str
) -> None:
    answer = await propose(web, BEARER, **more)
    assert (answer.status_code, says in answer.text) == (status, True)
    assert await web.path.rows("select count(*) from reviews") == [(0,)]


async def test_few_wait_at_the_same_time_and_other_rights_propose_nothing(web: Web) -> None:
    starts = await bearer(web, "trigger")
    assert [(await propose(web, starts, name=f"{n}")).status_code for n in range(4)] == [202, 202, 202, 429]
    assert (await propose(web, await bearer(web, "read", "chat"))).status_code == 403
    assert (await propose(web, await bearer(web, "trigger", source="github"))).status_code == 403
