"""Schedules: what the agent is to do later, or again and again."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gateway.agent.scheduling.schedules import MOST, SHOWN, Asking, Schedules
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label, Role
from gateway.domain.tools import AnyTool, Caller, Effect, Tool, ToolFailed
from gateway.store import addresses
from gateway.store.pool import Connection
from gateway.store.scheduling.schedules import ScheduleRow
from gateway.timetable.definition import Changes, Refused
from gateway.timetable.wording import in_words, local, moment
from gateway.tools import Own, Services

SHOWN_OF_PROMPT = 80
UTC_ASSUMED = (
    "Their time zone is not known, so UTC was taken. Tell them, ask for their city, write the zone into USER.md, "
    "and update this schedule with timezone and its time."
)

_OFFSET = re.compile(r":\d\d\S*(z|[+-]\d\d(:?\d\d)?)$", re.IGNORECASE)


class CronArguments(BaseModel):
    """Arguments of cron; an empty text says nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, coerce_numbers_to_str=True)

    action: Literal["list", "add", "update", "remove"]
    id: str | None = Field(None, description="Number or name")
    name: str | None = None
    schedule_type: Literal["once", "recurring"] | None = Field(None, description="Neither: backlog, never runs")
    run_at: str | None = Field(None, description="once: ISO 8601")
    cron_expr: str | None = Field(None, description="recurring: 5 fields")
    timezone: str | None = Field(None, description="IANA; default: the user's")
    prompt: str | None = Field(None, description="What you are told to do then")
    misfire: Literal["run_once", "skip", "catch_up"] | None = None
    include_session_history: bool | None = None
    enabled: bool | None = Field(None, description="false: paused")
    all: bool | None = Field(None, description="List paused and completed too")

    @field_validator("*", mode="before")
    @classmethod
    def _said(cls, value: object) -> object:
        return None if isinstance(value, str) and not value.strip() else value

    @property
    def which(self) -> str:
        """The schedule that is meant."""
        which = self.id or self.name
        if which is None:
            raise Refused(f"Say which schedule to {self.action}: its number or name as id.")
        return which

    @property
    def said(self) -> Changes:
        """What is said of it."""
        meant = self.action == "update" and self.id is None
        return Changes(
            name=None if meant else self.name,
            prompt=self.prompt,
            schedule_type=self.schedule_type,
            run_at=self.run_at,
            cron_expr=self.cron_expr,
            timezone=self.timezone,
            misfire=self.misfire,
            include_session_history=self.include_session_history,
        )


@dataclass(frozen=True, slots=True)
class _Cron:
    own: Own | None

    async def run(self, arguments: CronArguments, caller: Caller) -> JsonObject:
        own = self.own
        if own is None:
            raise ToolFailed("unavailable", "There are no schedules here.")
        if arguments.action != "list" and caller.address is None and caller.label is Label.UNTRUSTED:
            raise ToolFailed("not_allowed", "What others sent may not change schedules; tell the user instead.")
        try:
            return await own.transact(lambda tx: _act(tx, own, arguments, caller))
        except Refused as refusal:
            raise ToolFailed("refused", str(refusal)) from refusal


async def _act(tx: Connection, own: Own, arguments: CronArguments, caller: Caller) -> JsonObject:
    most = None if own.role is Role.OWNER else MOST
    mine = Schedules(tx, own.principal, own.clock.now(), own.zone(), most)
    match arguments.action:
        case "list":
            return await _list(mine, everything=arguments.all or False)
        case "add":
            row = await mine.add(await _asking(tx, caller), arguments.said)
        case "update":
            row = await mine.update(arguments.which, arguments.said, caller.label)
        case "remove":
            return {"removed": (gone := await mine.remove(arguments.which)).id, "name": gone.definition.name}
        case unreachable:
            assert_never(unreachable)
    if arguments.enabled is not None:
        row = await (mine.resume if arguments.enabled else mine.pause)(str(row.id))
    return {**_told(row, mine), **({"note": UTC_ASSUMED} if _zone_assumed(arguments, mine) else {})}


async def _list(mine: Schedules, *, everything: bool) -> JsonObject:
    rows, more = await mine.shown(everything=everything)
    told = [{**_told(row, mine), "prompt": row.definition.prompt[:SHOWN_OF_PROMPT]} for row in rows]
    return {"schedules": told, **({"more": more} if more else {})}


async def _asking(tx: Connection, caller: Caller) -> Asking:
    origin = "agent" if caller.address is None else (await addresses.get(tx, caller.address)).channel
    return Asking(origin, caller.address, caller.label, f"{caller.task}/{caller.ordinal}")


def _told(row: ScheduleRow, mine: Schedules) -> dict[str, Json]:
    zone = mine.zone or row.definition.zone
    told: dict[str, Json] = {"id": row.id, "name": row.definition.name, "in_words": in_words(row.definition)}
    if row.paused_at:
        told["paused"] = True
    elif row.next_run_at:
        told |= {
            "next_run": moment(row.next_run_at, zone),
            "next_run_at": local(row.next_run_at, zone).isoformat(),
            "in": until(row.next_run_at - mine.now),
        }
    if row.completed_at:
        told["completed"] = moment(row.completed_at, zone)
    if row.failing_since:
        told["failing_since"] = moment(row.failing_since, zone)
    return told


def _zone_assumed(arguments: CronArguments, mine: Schedules) -> bool:
    if mine.zone or arguments.timezone:
        return False
    return bool(arguments.cron_expr or (arguments.run_at and not _OFFSET.search(arguments.run_at)))


def until(left: timedelta) -> str:
    """How long that is, in its two largest units: "2 days 3 hours"."""
    minutes = round(left.total_seconds() / 60)
    parts = ((minutes // 1440, "day"), (minutes // 60 % 24, "hour"), (minutes % 60, "minute"))
    counted = [f"{number} {unit}{'s' * (number != 1)}" for number, unit in parts if number > 0]
    return " ".join(counted[:2]) or "less than a minute"


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool that keeps schedules."""
    return (
        Tool(
            "cron",
            f"Reminders and recurring work: at each time you are given the prompt anew and your answer is sent to this "
            f"chat. Confirm in the user's words and zone. Lists show {SHOWN}.",
            CronArguments,
            _Cron(services.own).run,
            Effect.IDEMPOTENT,
            max_result=30_000,
        ),
    )
