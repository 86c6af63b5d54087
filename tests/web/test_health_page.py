import json
import threading
from collections.abc import Sequence
from datetime import UTC, datetime

from gateway.domain.health import Finding, FindingLevel, JobRun, JobState
from tests.web.conftest import BEARER, Running

FOUND = [
    ("python", Finding(FindingLevel.OK, "Python 3.12")),
    ("model", Finding(FindingLevel.WARN, "no model is connected", "set a provider's key")),
    ("keys", Finding(FindingLevel.FAIL, "<b>other</b> users read claw_0123456789abcdef0123", "chmod 600 keys")),
]

DUE, BEGAN = datetime(2026, 11, 22, 14, 5, tzinfo=UTC), datetime(2026, 11, 22, 13, 5, tzinfo=UTC)
JOBS = {
    "log pruning": JobState(DUE, JobRun(BEGAN, 0.25)),
    "embed": JobState(None),
    "backup": JobState(None, JobRun(BEGAN, 2.0, "<b>no space</b>")),
}


async def test_the_page_waits_for_no_check_and_shows_the_worst_first(running: Running):
    let_go = threading.Event()

    def findings() -> Sequence[tuple[str, Finding]]:
        let_go.wait(30)
        return FOUND

    gateway = await running.start(findings=findings)
    async with gateway.web.sign_in() as browser:
        assert "Checking…" in (await browser.get("/checks")).text
        let_go.set()
        async with browser.stream("GET", "/checks/events") as answer:
            line = await anext(line async for line in answer.aiter_lines() if line.startswith("data: "))
    [[what, where, html]] = json.loads(line[6:])
    assert (what, where) == ("fill", "board")
    assert "1 failed, 1 warning, 1 OK." in html
    assert html.index("chmod 600 keys") < html.index("set a provider") < html.index("Python 3.12")
    assert "&lt;b&gt;other&lt;/b&gt; users read [hidden]" in html
    await gateway.stop()


async def test_a_higher_version_is_installed_by_the_owners_browser_alone(running: Running):
    began = list[bool]()
    newer = [("update", Finding(FindingLevel.WARN, "version 9.0.0 is available", "`supaclaw update` installs it"))]
    gateway = await running.start(findings=lambda: newer, update=lambda: began.append(True))
    by_token = await gateway.web.client.post("/checks/update", headers=BEARER)
    assert (by_token.status_code, began) == (401, [])
    async with gateway.web.sign_in() as browser:
        async with browser.stream("GET", "/checks/events") as answer:
            line = await anext(line async for line in answer.aiter_lines() if line.startswith("data: "))
        assert (await browser.post("/checks/update")).status_code == 204
    assert 'action="/checks/update"' in json.loads(line[6:])[0][2]
    assert began == [True]
    await gateway.stop()


async def test_the_page_shows_each_job_with_its_next_date_and_its_last_run(running: Running):
    started = await running.start(findings=lambda: FOUND, jobs=lambda: JOBS)
    async with started.web.sign_in() as browser:
        assert (await browser.get("/jobs")).headers["location"] == "/checks#jobs"
        async with browser.stream("GET", "/checks/events") as answer:
            line = await anext(line async for line in answer.aiter_lines() if line.startswith("data: "))
    page = json.loads(line[6:])[0][2]
    assert 'next <time datetime="2026-11-22T14:05:00+00:00">2026-11-22 14:05 UTC</time> · last' in page
    assert "2026-11-22 13:05 UTC</time>, 250 ms</small>" in page
    assert "2.0 s: &lt;b&gt;no space&lt;/b&gt;" in page
    assert "runs now" in page
    assert page.index('id="job-backup"') < page.index('id="job-log-pruning"'), "a failed one comes first"
    await started.stop()
