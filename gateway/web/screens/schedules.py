"""Schedules: reminders and recurring tasks, with their next times and the results of their runs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Form, Query
from fastapi.responses import HTMLResponse

from gateway.agent.work.schedules import ScheduleRequest, Schedules
from gateway.domain.principals import Label
from gateway.domain.work.schedules import Once, Recurring, ScheduleDefinition
from gateway.store.people import principals
from gateway.store.work import schedules as store
from gateway.store.work.schedules import ScheduleRow
from gateway.timetable.schedules import LONGEST_NAME, MAX_PROMPT, InvalidSchedule, ScheduleChanges, define, next_slots
from gateway.timetable.wording import cron_notes, in_words, local, moment
from gateway.web.auth.access import OWNER
from gateway.web.http.bodies import Text
from gateway.web.http.errors import Refused
from gateway.web.pages import Screen
from gateway.web.screens import add_board
from gateway.web.site import AtSite, RowId, Site

HERE = "/schedules"
MAX_LISTED = 200
NEXT = 5
Act = Literal["run", "pause", "resume", "remove"]
Time = Annotated[Text, Query(max_length=100)]

screen = Screen(HERE, "Schedules", "calendar-clock", 21)


@dataclass(frozen=True, slots=True)
class ScheduleForm:
    """A schedule as typed; empty fields are ignored."""

    name: Annotated[Text, Form(max_length=LONGEST_NAME)]
    prompt: Annotated[Text, Form(max_length=MAX_PROMPT)]
    cron_expr: Annotated[Text, Form(max_length=100)] = ""
    run_at: Annotated[Text, Form(max_length=100)] = ""
    timezone: Annotated[Text, Form(max_length=100)] = ""

    @property
    def changes(self) -> ScheduleChanges:
        """The filled-in fields."""
        times = ScheduleChanges(
            cron_expr=self.cron_expr or None, run_at=self.run_at or None, timezone=self.timezone or None
        )
        return ScheduleChanges(name=self.name, prompt=self.prompt.replace("\r\n", "\n"), **times)


@screen.get(f"{HERE}/next", dependencies=OWNER)
async def preview(site: AtSite, cron_expr: Time = "", run_at: Time = "", timezone: Time = "") -> HTMLResponse:
    """The next times of the schedule being typed, or what is wrong with it."""
    changes = ScheduleForm("-", "-", cron_expr, run_at, timezone).changes
    try:
        typed = define(now=site.clock.now(), zone=_zone(site), **changes)
    except InvalidSchedule as problem:
        return HTMLResponse(site.pages.piece("schedule_next.html", problem=str(problem)))
    return HTMLResponse(_next(site, typed))


@screen.post(HERE, status_code=204, dependencies=OWNER)
async def add(site: AtSite, form: Annotated[ScheduleForm, Depends()]) -> None:
    """Create a schedule; its results go to the chat where the owner wrote last."""
    await _change(site, lambda schedules: schedules.add(ScheduleRequest("web", Label.OWNER), form.changes))


@screen.get(f"{HERE}/{{id}}/details", dependencies=OWNER)
async def details(site: AtSite, id: RowId) -> HTMLResponse:
    """The next times, the fields and the last runs of a schedule."""
    async with site.database.transaction() as tx:
        row = await store.get(tx, None, str(id))
        if row is None or row.id != id:
            raise Refused(404, "not_found", f"There is no schedule {id}.")
        runs = await store.runs(tx, row.id)
    when, next_ = row.definition.when, _next(site, row.definition)
    cron, run_at = when.cron if isinstance(when, Recurring) else "", _run_at(row)
    piece = site.pages.piece("schedule_details.html", row=row, cron=cron, run_at=run_at, runs=runs, next=next_)
    return HTMLResponse(piece)


@screen.post(f"{HERE}/{{id}}", status_code=204, dependencies=OWNER)
async def update(site: AtSite, id: RowId, form: Annotated[ScheduleForm, Depends()]) -> None:
    """Save the form."""
    await _change(site, lambda schedules: schedules.update(str(id), form.changes, Label.OWNER))


@screen.post(f"{HERE}/{{id}}/{{act}}", status_code=204, dependencies=OWNER)
async def act(site: AtSite, id: RowId, act: Act) -> None:
    """Run, pause, resume or delete it; its runs are deleted with it."""
    await _change(site, lambda schedules: getattr(schedules, act)(str(id)))


async def _change(site: Site, work: Callable[[Schedules], Awaitable[object]]) -> None:
    owner, now, zone = site.owner.id, site.clock.now(), _zone(site)
    await site.database.run(lambda tx: work(Schedules(tx, owner, now, zone, most=None, of_all=True)))


async def _pieces(site: Site) -> Mapping[str, str]:
    async with site.database.connection() as conn:
        rows = await store.listed(conn, None, everything=True, limit=MAX_LISTED)
        people = await principals.names(conn, {row.principal_id for row in rows} - {site.owner.id})
        running = await store.running(conn)
    piece = site.pages.piece
    made: dict[str, str] = {"empty": piece("schedule.html", row=None)}
    for row in rows:
        of, words = people.get(row.principal_id, ""), in_words(row.definition)
        made[f"s{row.id}"] = piece("schedule.html", row=row, of=of, words=words, running=row.id in running)
    return made


def _next(site: Site, typed: ScheduleDefinition) -> str:
    slots = [(slot, moment(slot, typed.zone)) for slot in next_slots(typed, site.clock.now(), NEXT)]
    words, when = in_words(typed) if typed.when else "", typed.when
    notes = cron_notes(when.cron) if isinstance(when, Recurring) and slots else []
    return site.pages.piece("schedule_next.html", problem="", words=words, slots=slots, notes=notes)


def _run_at(row: ScheduleRow) -> str:
    """The time of a one-time schedule in the format of the form; empty for others."""
    when, zone = row.definition.when, row.definition.zone
    return f"{local(when.at, zone):%Y-%m-%dT%H:%M}" if isinstance(when, Once) and not row.completed_at else ""


def _zone(site: Site) -> str | None:
    return site.chat.zones.zone_of(site.owner.id)


add_board(screen, _pieces, "schedules.html")
