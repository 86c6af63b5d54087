"""Schedules: when to create a task: once, by a cron expression, or only on request (a backlog item)."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

UTC_ZONE = "UTC"


class Misfire(StrEnum):
    """Policy for slots missed during downtime: run the last one, none, or each."""

    RUN_ONCE = "run_once"
    SKIP = "skip"
    CATCH_UP = "catch_up"


@dataclass(frozen=True, slots=True)
class Once:
    """At one instant, a timezone-aware datetime."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Recurring:
    """By five cron fields, on the wall clock of the definition's zone."""

    cron: str


When: TypeAlias = Once | Recurring | None
"""None: a backlog item, which never runs by itself."""


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """A schedule: what to do, and when. `zone` is an IANA name; all its times are in it."""

    name: str
    prompt: str
    when: When
    zone: str = UTC_ZONE
    misfire: Misfire = Misfire.RUN_ONCE
    include_session_history: bool = False


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The decision on a due schedule: run `slot`, unless it is None; the schedule is due again at `next_slot`.

    `missed` slots from `missed_since` to `missed_until` are not run; at most `MOST_COUNTED` are counted. `next_slot`
    is None if there is no other.
    """

    slot: datetime | None
    next_slot: datetime | None
    missed: int = 0
    missed_since: datetime | None = None
    missed_until: datetime | None = None


MOST_COUNTED = 1_000
