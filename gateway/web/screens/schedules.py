"""Schedules: reminders and recurring tasks, with their next times and the results of their runs."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Annotated, Literal, Self, assert_never

from fastapi import Form, Query
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from gateway.agent.work.schedules import ScheduleRequest, Schedules
from gateway.domain.principals import Label
from gateway.domain.time import zone_names
from gateway.domain.work.schedules import Once, Recurring, ScheduleDefinition
from gateway.store.people import principals
from gateway.store.transcript import messages
from gateway.store.work import schedules as store
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
Typed = Annotated[Text, Field(max_length=100)]

screen = Screen(HERE, "Schedules", "calendar-clock", 21)


class ScheduleTimes(BaseModel):
    """The times of a schedule: chosen in the form, or as cron fields or a time; empty fields are ignored."""

    model_config = ConfigDict(frozen=True)

    every: Literal["once", "day", "weekday", "week", "month", "place", "cron", "never"] = "cron"
    date: Typed = ""
    time: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] = "09:00"
    weekday: Annotated[int, Field(ge=0, le=7)] = 1
    place: Literal["1", "2", "3", "4", "L"] = "1"
    day: Annotated[str, Field(pattern=r"^(\d{1,2}|L)$")] = "1"
    cron_expr: Typed = ""
    run_at: Typed = ""
    timezone: Typed = ""

    @classmethod
    def of(cls, definition: ScheduleDefinition) -> Self:
        """The fields that describe a schedule."""
        zone = definition.zone
        match definition.when:
            case None:
                return cls(every="never", timezone=zone)
            case Once(at):
                there = local(at, zone)
                return cls(every="once", date=f"{there:%Y-%m-%d}", time=f"{there:%H:%M}", timezone=zone)
            case Recurring(cron):
                return cls.model_validate({"cron_expr": cron, "timezone": zone, **_choices(cron)})
            case unreachable:
                assert_never(unreachable)

    @property
    def changes(self) -> ScheduleChanges:
        """The times that were filled in."""
        at = {"once": f"{self.date}T{self.time}", "cron": self.run_at}.get(self.every)
        return ScheduleChanges(cron_expr=self._cron or None, run_at=at or None, timezone=self.timezone or None)

    @property
    def _cron(self) -> str | None:
        hour, _, minute = self.time.partition(":")
        days = {
            "day": "* * *",
            "weekday": "* * 1-5",
            "week": f"* * {self.weekday}",
            "month": f"{self.day} * *",
            "place": f"* * {f'L{self.weekday}' if self.place == 'L' else f'{self.weekday}#{self.place}'}",
        }
        return f"{int(minute)} {int(hour)} {days[self.every]}" if self.every in days else self.cron_expr


class ScheduleForm(ScheduleTimes):
    """A schedule as typed."""

    name: Annotated[Text, Field(max_length=LONGEST_NAME)]
    prompt: Annotated[Text, Field(max_length=MAX_PROMPT)]

    @property
    def all_changes(self) -> ScheduleChanges:
        """Its times, name and prompt."""
        return ScheduleChanges(name=self.name, prompt=self.prompt.replace("\r\n", "\n"), **self.changes)


_DAYS = {
    "day": re.compile(r"\* \* \*"),
    "weekday": re.compile(r"\* \* 1-5"),
    "week": re.compile(r"\* \* (?P<weekday>[0-7])"),
    "month": re.compile(r"(?P<day>\d{1,2}|L) \* \*"),
    "place": re.compile(r"\* \* (?P<weekday>[0-7])#(?P<place>[1-4L])"),
}


def _choices(cron: str) -> Mapping[str, str]:
    """The choices in the form that make these cron fields; none if only the fields can say it."""
    minute, hour, days = cron.split(" ", 2)
    every = {name: found for name, each in _DAYS.items() if (found := each.fullmatch(re.sub(r"L(\d)", r"\1#L", days)))}
    if not every or not (minute.isdecimal() and hour.isdecimal()):
        return {}
    [(name, found)] = every.items()
    return {"every": name, "time": f"{hour:0>2}:{minute:0>2}", **found.groupdict()}


@screen.get(f"{HERE}/next", dependencies=OWNER)
async def preview(site: AtSite, times: Annotated[ScheduleTimes, Query()]) -> HTMLResponse:
    """The next times of the schedule being typed, or what is wrong with it."""
    try:
        typed = define(now=site.clock.now(), zone=site.zone, **ScheduleChanges(name="-", prompt="-", **times.changes))
    except InvalidSchedule as problem:
        return HTMLResponse(site.pages.piece("schedule_next.html", problem=str(problem)))
    return HTMLResponse(_next(site, typed))


@screen.post(HERE, status_code=204, dependencies=OWNER)
async def add(site: AtSite, form: Annotated[ScheduleForm, Form()]) -> None:
    """Create a schedule; its results go to the chat where the owner wrote last."""
    await _change(site, lambda schedules: schedules.add(ScheduleRequest("web", Label.OWNER), form.all_changes))


@screen.get(f"{HERE}/{{id}}/details", dependencies=OWNER)
async def details(site: AtSite, id: RowId) -> HTMLResponse:
    """The next times, the fields and the last runs of a schedule."""
    async with site.database.transaction() as tx:
        row = await store.get(tx, None, str(id))
        if row is None or row.id != id:
            raise Refused(404, "not_found", f"There is no schedule {id}.")
        runs = await store.runs(tx, row.id)
        said = [run.message_id and await messages.get(tx, run.message_id) for run in runs]
    shown = [(run, moment(run.slot, row.definition.zone), text) for run, text in zip(runs, said, strict=True)]
    times = ScheduleTimes.of(replace(row.definition, when=None) if row.completed_at else row.definition)
    next_ = _next(site, row.definition)
    return HTMLResponse(site.pages.piece("schedule_details.html", row=row, times=times, runs=shown, next=next_))


@screen.post(f"{HERE}/{{id}}", status_code=204, dependencies=OWNER)
async def update(site: AtSite, id: RowId, form: Annotated[ScheduleForm, Form()]) -> None:
    """Save the form."""
    await _change(site, lambda schedules: schedules.update(str(id), form.all_changes, Label.OWNER))


@screen.post(f"{HERE}/{{id}}/{{act}}", status_code=204, dependencies=OWNER)
async def act(site: AtSite, id: RowId, act: Act) -> None:
    """Run, pause, resume or delete it; its runs are deleted with it."""
    await _change(site, lambda schedules: getattr(schedules, act)(str(id)))


async def _change(site: Site, work: Callable[[Schedules], Awaitable[object]]) -> None:
    owner, now, zone = site.owner.id, site.clock.now(), site.zone
    await site.database.run(lambda tx: work(Schedules(tx, owner, now, zone, most=None, of_all=True)))


async def _pieces(site: Site) -> Mapping[str, str]:
    async with site.database.connection() as conn:
        rows = await store.listed(conn, None, everything=True, limit=MAX_LISTED)
        people = await principals.names(conn, {row.principal_id for row in rows})
        running = await store.running(conn)
    piece = site.pages.piece
    made: dict[str, str] = {"empty": piece("schedule.html", row=None)}
    for row in rows:
        of, words = people.get(row.principal_id, ""), in_words(row.definition)
        next_ = moment(row.next_run_at, row.definition.zone) if row.next_run_at and not row.paused_at else ""
        made[f"s{row.id}"] = piece("schedule.html", row=row, of=of, words=words, next=next_, running=row.id in running)
    return made


def _next(site: Site, typed: ScheduleDefinition) -> str:
    slots = [moment(slot, typed.zone) for slot in next_slots(typed, site.clock.now(), NEXT)]
    words, when = in_words(typed) if typed.when else "", typed.when
    notes = cron_notes(when.cron) if isinstance(when, Recurring) and slots else []
    return site.pages.piece("schedule_next.html", problem="", words=words, slots=slots, notes=notes)


add_board(screen, _pieces, "schedules.html", times=ScheduleTimes(every="day"), zones=zone_names())
