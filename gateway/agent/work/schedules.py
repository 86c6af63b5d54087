"""Schedules: the rules for changes, the task of one slot, and the notices about failures."""

import json
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta

from gateway.domain.conversation.transcript import Notice
from gateway.domain.errors import required
from gateway.domain.ids import AddressId, PrincipalId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text.marks import without_marks
from gateway.domain.text.texts import one_line
from gateway.domain.work.plans import HOW
from gateway.domain.work.schedules import Once, Recurring, ScheduleDefinition
from gateway.domain.work.tasks import QUIET, Assignment
from gateway.store.connection.pool import Connection
from gateway.store.work import schedules
from gateway.store.work.schedules import ScheduleRow
from gateway.timetable.cron import shortest_gap
from gateway.timetable.schedules import LONGEST_NAME, InvalidSchedule, ScheduleChanges, amend, define, next_slot
from gateway.timetable.wording import in_words, moment

ON_TIME = timedelta(minutes=1)
LONGEST_PROMPT_NAME = 200

ORDERS = f"""\
Nobody is waiting for this and nobody can answer a question now. Your answer is sent to the user as it is, so write \
what the user is to read and nothing else. If there is nothing to tell, answer exactly: {QUIET}"""


def slot_assignment(row: ScheduleRow, slot: datetime, *, now: datetime, missed: int = 0) -> Assignment:
    """The task of one slot, after `missed` slots that did not run."""
    definition = row.definition
    name = one_line(definition.name, LONGEST_PROMPT_NAME)
    head = [
        f"Scheduled task {row.id}: {name}",
        f"Schedule: {in_words(definition)}",
        f"Planned for: {moment(slot, definition.zone)}",
    ]
    if now - slot > ON_TIME:
        head.append(f"Late: it is {moment(now, definition.zone)} now")
    if missed:
        head.append(f"Missed before it and not run: {missed}")
    plan = ["", HOW, json.dumps(row.plan["arguments"], ensure_ascii=False)] if row.plan else []
    return Assignment(
        prompt="\n".join([*head, "", ORDERS, "", without_marks("\n".join([definition.prompt, *plan]))]),
        name=name,
        origin="schedule",
        label=row.label,
        address=row.address_id,
        history=definition.include_session_history,
        schedule=row.id,
        slot=slot,
    )


MOST_SCHEDULES = 20
"""Unfinished schedules of a person other than the owner."""
LEAST_GAP = timedelta(minutes=5)
"""The shortest time between two slots, except for the owner."""
SHOWN = 50
"""Schedules in one list."""


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """The origin and the label of a new schedule; `call` is the key of a tool call, whose repetition adds no other."""

    origin: str
    label: Label
    address: AddressId | None = None
    call: str | None = None


def schedule_line(row: ScheduleRow) -> str:
    """A schedule and its state: "3: tea; every day at 16:00 UTC (0 16 * * *); next Sun 22 Nov 2026 16:00 UTC"."""
    definition = row.definition
    facts = [one_line(definition.name, LONGEST_NAME), in_words(definition)]
    if row.paused_at:
        facts.append("paused")
    elif row.completed_at:
        facts.append("over")
    elif row.next_run_at and not isinstance(definition.when, Once):
        facts.append(f"next {moment(row.next_run_at, definition.zone)}")
    if row.failing_since:
        facts.append(f"failing since {moment(row.failing_since, definition.zone)}")
    return f"{row.id}: {'; '.join(facts)}"


@dataclass(frozen=True, slots=True)
class Schedules:
    """Changes the schedules of one principal, in the caller's transaction. Raises `InvalidSchedule`, for people.

    `zone` is the principal's own. `most` is the number of unfinished schedules they may have, each with a `LEAST_GAP`;
    None: no limit, for the owner. With `of_all` a number may refer to another person's. `asked_at` is the time from
    which delays count; None: now.
    """

    tx: Connection
    principal: PrincipalId
    now: datetime
    zone: str | None = None
    _: KW_ONLY
    most: int | None
    of_all: bool = False
    asked_at: datetime | None = None

    async def shown(self, *, everything: bool = False) -> tuple[list[ScheduleRow], int]:
        """The first `SHOWN`, and the number of further ones; without `everything` no paused or finished ones."""
        rows = await schedules.listed(self.tx, self.principal, everything=everything, limit=SHOWN)
        return rows, await schedules.count(self.tx, self.principal, paused=everything, over=everything) - len(rows)

    async def add(self, request: ScheduleRequest, fields: ScheduleChanges) -> ScheduleRow:
        """Add a schedule, or return the one that this call has added before."""
        if request.call and (made := await schedules.made_by(self.tx, request.call)):
            return made
        await self._room()
        definition = self._allowed(define(now=self.now, zone=self.zone, asked_at=self.asked_at, **fields))
        row = await schedules.add(
            self.tx,
            self.principal,
            definition,
            next_run_at=self._next_slot(definition),
            origin=request.origin,
            label=request.label,
            address=request.address,
            asked_by=request.call,
        )
        return row or await self._refuse_name(definition.name)

    async def update(self, which: str, fields: ScheduleChanges, label: Label) -> ScheduleRow:
        """Change the given fields; `label` is that of the conversation, below which its trust falls."""
        row = await self.get(which)
        definition = self._allowed(
            amend(row.definition, now=self.now, zone=self.zone, asked_at=self.asked_at, **fields)
        )
        if definition == row.definition:
            return row
        await schedules.hold(self.tx, self.principal)  # two changes to the same name take turns
        if row.completed_at:
            if definition.when == row.definition.when:
                raise InvalidSchedule(f"Schedule {row.id} is over; give it a new time.")
            await self._room()
        same = definition.zone == row.definition.zone or not isinstance(definition.when, Recurring)
        at = row.next_run_at if same and definition.when == row.definition.when else self._next_slot(definition)
        updated = await schedules.update(self.tx, row.id, definition, at, label=label)
        return updated or await self._refuse_name(definition.name)

    async def pause(self, which: str) -> ScheduleRow:
        """Pause a schedule."""
        return await schedules.pause(self.tx, (await self.get(which)).id, paused=True, next_run_at=None)

    async def resume(self, which: str) -> ScheduleRow:
        """Resume with the next slot from now; slots in the pause are not made up for."""
        row = await self.get(which)
        if row.paused_at is None:
            return row
        at = self._next_slot(self._allowed(row.definition))
        if at is None and row.definition.when is not None:
            raise InvalidSchedule(f"The time of schedule {row.id} has passed; give it a new one.")
        return await schedules.pause(self.tx, row.id, paused=False, next_run_at=at)

    async def remove(self, which: str) -> ScheduleRow:
        """Delete a schedule with its runs and return it."""
        row = await self.get(which)
        await schedules.remove(self.tx, row.id)
        return row

    async def run(self, which: str) -> tuple[ScheduleRow, TaskId]:
        """Run it once now, in addition to its slots."""
        row = await self.get(which)
        task = await schedules.fire(self.tx, row, slot_assignment(row, self.now, now=self.now))
        return row, required(task, InvalidSchedule(f"Schedule {row.id} is running; wait until it ends."))

    async def get(self, which: str) -> ScheduleRow:
        """The schedule with this number or name, locked until the transaction ends."""
        row = await schedules.get(self.tx, self.principal, which)
        if row is None and self.of_all and which.isdecimal():
            row = await schedules.get(self.tx, None, which)
        unknown = InvalidSchedule(f"There is no schedule {which[:64]!r}; list them to see their numbers and names.")
        return required(row, unknown)

    async def _room(self) -> None:
        await schedules.hold(self.tx, self.principal)
        if self.most is not None and await schedules.count(self.tx, self.principal) >= self.most:
            raise InvalidSchedule(f"You already have {self.most} schedules, the most allowed; remove one first.")

    def _allowed(self, definition: ScheduleDefinition) -> ScheduleDefinition:
        if self.most is not None and isinstance(definition.when, Recurring):
            self._next_slot(definition)
            if shortest_gap(definition.when.cron) < LEAST_GAP:
                raise InvalidSchedule('Runs must be at least 5 minutes apart; use a cron_expr such as "*/5 * * * *".')
        return definition

    def _next_slot(self, definition: ScheduleDefinition) -> datetime | None:
        try:
            return next_slot(definition, self.now)
        except ValueError as error:  # it was valid when it was stored
            raise InvalidSchedule(f"Its time is no longer valid: {error}. Give it a new one.") from error

    async def _refuse_name(self, name: str) -> ScheduleRow:
        there = await schedules.get(self.tx, self.principal, name)
        number = f": number {there.id}" if there else ""
        raise InvalidSchedule(
            f"A schedule named {name!r} already exists{number}. Update or remove it, or choose another name."
        )


def schedule_failed(definition: ScheduleDefinition, slot: datetime, reason: str) -> Notice:
    """The notice with the prompt in it: a reminder reaches its person even without a model."""
    said = f"{_planned(definition, slot)} failed: {reason}\n\nIt was meant to do this:\n{definition.prompt}"
    again = "\n\nI won't repeat this until it works again." if isinstance(definition.when, Recurring) else ""
    return Notice(said + again)


def schedule_undelivered(definition: ScheduleDefinition, slot: datetime, reason: str) -> Notice:
    """The notice to the owner, also about another person's schedule: without its content."""
    return Notice(f"{_planned(definition, slot)} ran, but its message wasn't delivered: {reason}")


def schedule_works(definition: ScheduleDefinition) -> Notice:
    """The notice that a reported failure is over."""
    return Notice(f'The schedule "{definition.name}" works again.')


def trigger_failed(source: str, reason: str) -> Notice:
    """The notice without the input, which is untrusted text."""
    return Notice(
        f"What {source} sent couldn't be processed: {reason}\n\nFurther failures in this hour aren't reported."
    )


def _planned(definition: ScheduleDefinition, slot: datetime) -> str:
    return f'The schedule "{definition.name}", planned for {moment(slot, definition.zone)},'
