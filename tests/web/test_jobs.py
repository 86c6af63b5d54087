from datetime import UTC, datetime

from gateway.domain.health import JobRun, JobState
from tests.web.conftest import Running

DUE, BEGAN = datetime(2026, 11, 22, 14, 5, tzinfo=UTC), datetime(2026, 11, 22, 13, 5, tzinfo=UTC)
JOBS = {
    "log pruning": JobState(DUE, JobRun(BEGAN, 0.25)),
    "embed": JobState(None),
    "backup": JobState(None, JobRun(BEGAN, 2.0, "<b>no space</b>")),
}


async def test_the_page_shows_each_job_with_its_next_date_and_its_last_run(running: Running):
    started = await running.start(jobs=lambda: JOBS)
    async with started.web.sign_in() as browser:
        page = (await browser.get("/jobs")).text
    assert 'next <time datetime="2026-11-22T14:05:00+00:00">2026-11-22 14:05 UTC</time> · last' in page
    assert "2026-11-22 13:05 UTC</time>, 250 ms</small>" in page
    assert "2.0 s: &lt;b&gt;no space&lt;/b&gt;" in page
    assert "runs now" in page
    assert page.index('id="job-backup"') < page.index('id="job-log-pruning"'), "a failed one comes first"
    await started.stop()
