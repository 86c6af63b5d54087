"""Schedules: reminders and recurring tasks."""

import asyncio
import hashlib
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, cast

from pydantic import Field

from gateway.agent.work.schedules import MOST_SCHEDULES, ScheduleRequest, Schedules
from gateway.domain.conversation.diff import difference
from gateway.domain.conversation.tools import (
    AnyTool,
    Caller,
    Change,
    Effect,
    Labelled,
    ToolArguments,
    ToolClass,
    ToolFailed,
)
from gateway.domain.errors import required
from gateway.domain.json import Json
from gateway.domain.principals import Label, Role
from gateway.domain.work.schedules import Recurring
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.transcript import messages
from gateway.store.work.schedules import ScheduleRow
from gateway.timetable.schedules import InvalidSchedule, ScheduleChanges, is_delay, next_slots
from gateway.timetable.wording import cron_notes, in_words, local, moment
from gateway.tools import PrincipalContext, Services, declared, tool

_Changed: TypeAlias = tuple[ScheduleRow | None, ScheduleRow | None]

PROMPT_PREVIEW_CHARS, NEXT_SHOWN = 80, 5
UTC_ASSUMED = (
    "Their time zone is unknown, so UTC is used. Tell them, ask for their city, write the zone into USER.md, "
    "and update this schedule with timezone and its time."
)

_OFFSET = re.compile(r":\d\d\S*(z|[+-]\d\d(:?\d\d)?)$", re.IGNORECASE)


class CronArguments(ToolArguments):
    """Arguments of cron."""

    action: Literal["list", "add", "update", "remove"]
    id: str | None = Field(None, description="Number or name")
    name: str | None = None
    schedule_type: Literal["once", "recurring"] | None = Field(None, description="Neither: never runs by itself")
    run_at: str | None = Field(None, description="once: ISO 8601, or in 20 minutes")
    cron_expr: str | None = Field(None, description="recurring: 5 fields; 1#1: first Monday, 1%2: every second")
    timezone: str | None = Field(None, description="IANA; default: the user's")
    prompt: str | None = Field(None, description="What you are to do then")
    misfire: Literal["run_once", "skip", "catch_up"] | None = None
    include_session_history: bool | None = None
    enabled: bool | None = Field(None, description="false: paused")
    all: bool | None = Field(None, description="List paused and completed too")

    @property
    def which(self) -> str:
        """The number or name of the schedule to act on."""
        return required(
            self.id or self.name, InvalidSchedule(f"Say which schedule to {self.action}: its number or name as id.")
        )

    @property
    def changes(self) -> ScheduleChanges:
        """The fields to set; a name that says which schedule to update is none of them."""
        hidden = {"name"} if self.action == "update" and self.id is None else set[str]()
        return cast(ScheduleChanges, self.model_dump(include=ScheduleChanges.__annotations__.keys() - hidden))


async def _act(tx: Connection, context: PrincipalContext, arguments: CronArguments, caller: Caller) -> Labelled:
    schedules = await _schedules(tx, context, caller)
    if arguments.action == "list":
        return await _list(schedules, everything=arguments.all or False)
    before, row = await _change(schedules, arguments, caller)
    if row is None:
        assert before is not None, "what is removed was there"
        return Labelled({"removed": before.id, "name": before.definition.name}, before.label)
    note = {"note": UTC_ASSUMED} if _zone_assumed(arguments, schedules) else {}
    return Labelled({**_schedule_json(row, schedules), **_recurring_json(row, schedules), **note}, row.label)


async def _change(schedules: Schedules, arguments: CronArguments, caller: Caller) -> _Changed:
    """Make the change; returns the schedule before and after it."""
    if arguments.action == "add":
        before, row = None, await schedules.add(await _request_of(schedules.tx, caller), arguments.changes)
    else:
        before = await schedules.get(arguments.which)
        if arguments.action == "remove":
            await schedules.remove(str(before.id))
            return before, None
        row = await schedules.update(str(before.id), arguments.changes, caller.label)
    if arguments.enabled is not None:
        row = await (schedules.resume if arguments.enabled else schedules.pause)(str(row.id))
    return before, row


class _RolledBack(Exception):
    def __init__(self, changed: _Changed) -> None:
        self.changed = changed


def _written_out(row: ScheduleRow) -> str:
    """The whole schedule as text for people."""
    definition, state = row.definition, "paused" if row.paused_at else "over" if row.completed_at else "active"
    reads = "yes" if definition.include_session_history else "no"
    facts = f"name: {definition.name}\nwhen: {in_words(definition)}\nmissed: {definition.misfire}\nstate: {state}"
    return f"{facts}\nreads this chat: {reads}\nprompt:\n{definition.prompt}"


async def _schedules(tx: Connection, context: PrincipalContext, caller: Caller) -> Schedules:
    """The principal's schedules; delays count from the person's message, which may have waited in the queue."""
    most = None if context.role is Role.OWNER else MOST_SCHEDULES
    said_at = await messages.said_at(tx, caller.session, caller.task, caller.ordinal) if caller.address else None
    return Schedules(tx, context.principal, context.clock.now(), context.zone(), most=most, asked_at=said_at)


async def _list(schedules: Schedules, *, everything: bool) -> Labelled:
    rows, more = await schedules.shown(everything=everything)
    items = [{**_schedule_json(row, schedules), "prompt": row.definition.prompt[:PROMPT_PREVIEW_CHARS]} for row in rows]
    label = max((row.label for row in rows), default=Label.OWNER)
    return Labelled({"schedules": items, **({"more": more} if more else {})}, label)


async def _request_of(tx: Connection, caller: Caller) -> ScheduleRequest:
    origin = "agent" if caller.address is None else (await addresses.get(tx, caller.address)).channel
    return ScheduleRequest(origin, caller.label, caller.address, f"{caller.task}/{caller.ordinal}")


def _schedule_json(row: ScheduleRow, schedules: Schedules) -> dict[str, Json]:
    zone = schedules.zone or row.definition.zone
    fields: dict[str, Json] = {"id": row.id, "name": row.definition.name, "in_words": in_words(row.definition)}
    if row.plan:
        fields["planned"] = True
    if row.paused_at:
        fields["paused"] = True
    elif row.next_run_at:
        fields |= {
            "next_run": moment(row.next_run_at, zone),
            "next_run_at": local(row.next_run_at, zone).isoformat(),
            "in": until(row.next_run_at - schedules.now),
        }
    if row.completed_at:
        fields["completed"] = moment(row.completed_at, zone)
    if row.failing_since:
        fields["failing_since"] = moment(row.failing_since, zone)
    return fields


def _recurring_json(row: ScheduleRow, schedules: Schedules) -> dict[str, Json]:
    """The next times, for the person to see that they are meant, and what is unexpected about them."""
    if not isinstance(when := row.definition.when, Recurring) or row.paused_at:
        return {}
    slots = next_slots(row.definition, schedules.now, NEXT_SHOWN)
    times: dict[str, Json] = {"next_times": [moment(slot, schedules.zone or row.definition.zone) for slot in slots]}
    notes = cron_notes(when.cron)
    return times | ({"tell_them": list(notes)} if notes else {})


def _zone_assumed(arguments: CronArguments, schedules: Schedules) -> bool:
    if schedules.zone or arguments.timezone:
        return False
    at = arguments.run_at
    return bool(arguments.cron_expr or (at and not _OFFSET.search(at) and not is_delay(at)))


def until(left: timedelta) -> str:
    """Format a duration in its two largest units: "2 days 3 hours"."""
    minutes = round(left.total_seconds() / 60)
    parts = ((minutes // 1440, "day"), (minutes // 60 % 24, "hour"), (minutes % 60, "minute"))
    counted = [f"{number} {unit}{'s' * (number != 1)}" for number, unit in parts if number > 0]
    return " ".join(counted[:2]) or "less than a minute"


@dataclass(frozen=True, slots=True)
class _Cron:
    context: PrincipalContext | None

    async def kind(self, arguments: CronArguments, _caller: Caller) -> ToolClass:
        return ToolClass.READ if arguments.action == "list" else ToolClass.PERSIST

    async def lasting(self, arguments: CronArguments, caller: Caller) -> Change | None:
        """The difference that a change would make, found by making it in a transaction that is rolled back."""
        if (context := self.context) is None or arguments.action == "list":
            return None

        async def rehearse(tx: Connection) -> _Changed:
            raise _RolledBack(await _change(await _schedules(tx, context, caller), arguments, caller))

        try:
            await context.transact(rehearse)
        except _RolledBack as rehearsed:
            before, after = (_written_out(row) if row else "" for row in rehearsed.changed)
        if before == after:
            return None
        preview = await asyncio.to_thread(difference, "schedule", before, after)
        return Change(preview, hashlib.sha256(preview.encode()).hexdigest())

    @tool("Scheduling", "Schedule: {action} {name} {run_at}", kind, lasting, effect=Effect.IDEMPOTENT, max_result=30000)
    async def cron(self, arguments: CronArguments, caller: Caller) -> Labelled:
        """Reminders and recurring work: at each time you get the prompt anew; your answer goes to this chat.

        Confirm in the user's words and zone. Lists show 50.
        """
        context = required(self.context, ToolFailed.own("unavailable", "There are no schedules here."))
        return await context.transact(lambda tx: _act(tx, context, arguments, caller))


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool that manages schedules."""
    return declared(_Cron(services.context))
