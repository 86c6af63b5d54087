"""Jobs: the gateway's own jobs, with their dates and last runs."""

from collections.abc import Mapping

from gateway.web.pages import Screen
from gateway.web.screens import add_board
from gateway.web.site import Site
from gateway.web.trace import seconds

screen = Screen("/jobs", "Jobs", "clock", 59)


async def job_pieces(site: Site) -> Mapping[str, str]:
    """The rows, those whose last run failed first."""
    jobs = sorted(site.health.jobs().items(), key=lambda job: not (job[1].last and job[1].last.error))
    made: dict[str, str] = {"empty": site.pages.part("no_jobs")}
    for name, state in jobs:
        id, took = f"job-{name.replace(' ', '-')}", seconds(state.last.seconds) if state.last else ""
        made[id] = site.pages.part("job", id, name, state, took)
    return made


add_board(screen, job_pieces)
