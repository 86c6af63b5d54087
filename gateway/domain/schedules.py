"""Schedules: when to create a task. Once, by a cron expression, or never of itself (an item of the backlog)."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

UTC_ZONE = "UTC"


class Misfire(StrEnum):
    """What happens to slots that passed while nothing ran: the last one runs, none does, each does."""

    RUN_ONCE = "run_once"
    SKIP = "skip"
    CATCH_UP = "catch_up"


@dataclass(frozen=True, slots=True)
class Once:
    """At one instant, aware."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Recurring:
    """By five cron fields, read on the wall clock of the definition's zone."""

    cron: str


When: TypeAlias = Once | Recurring | None
"""None: tracked, never fired."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What a schedule is: what to do, and when. `zone` is an IANA name; times are meant and told in it."""

    name: str
    prompt: str
    when: When
    zone: str = UTC_ZONE
    misfire: Misfire = Misfire.RUN_ONCE
    include_session_history: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about a schedule that is due: run `slot`, unless it is None, and look again at `next_slot`.

    `missed` slots from `missed_since` to `missed_until` are not run; at most `MOST_COUNTED` are counted. `next_slot`
    is None when there will be no other.
    """

    slot: datetime | None
    next_slot: datetime | None
    missed: int = 0
    missed_since: datetime | None = None
    missed_until: datetime | None = None


MOST_COUNTED = 1_000
