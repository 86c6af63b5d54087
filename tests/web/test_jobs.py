from datetime import UTC, datetime

from tests.web.conftest import Running


async def test_the_page_shows_each_job_with_its_next_date(running: Running):
    jobs = {"log pruning": datetime(2026, 11, 22, 14, 5, tzinfo=UTC), "heartbeat": None}
    started = await running.start(jobs=lambda: jobs)
    async with started.web.sign_in() as browser:
        page = (await browser.get("/jobs")).text
    assert (
        '<b>Log pruning</b><small>next <time datetime="2026-11-22T14:05:00+00:00">2026-11-22 14:05 UTC</time>' in page
    )
    assert '<article class="row" id="job-heartbeat">' in page
    assert "running now, or not scheduled" in page
    await started.stop()
