"""Jobs: the gateway's own jobs and their next dates."""

from collections.abc import Mapping

from gateway.web.pages import Screen
from gateway.web.screens import add_board
from gateway.web.site import Site

screen = Screen("/jobs", "Jobs", "clock", 59)


async def _pieces(site: Site) -> Mapping[str, str]:
    jobs = {f"job-{name.replace(' ', '-')}": (name, at) for name, at in site.health.jobs().items()}
    made: dict[str, str] = {"empty": site.pages.part("no_jobs")}
    return made | {id: site.pages.part("job", id, name, at) for id, (name, at) in jobs.items()}


add_board(screen, _pieces)
