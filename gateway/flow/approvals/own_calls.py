"""Calls of the gateway itself that a person allows: each made once, in the transaction that tells its result."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TypeAlias

from gateway.agent.scheduling.schedules import Schedules, line
from gateway.domain.principals import Label
from gateway.store.pool import Connection
from gateway.store.reviews import ReviewRow
from gateway.store.scheduling import schedules
from gateway.timetable.definition import Refused

OwnCall: TypeAlias = Callable[[Connection, ReviewRow, Label, datetime], Awaitable[str]]
"""Makes the call of a question whose person's own trust level is the label; says in one line what it did."""


async def resume_schedule(tx: Connection, review: ReviewRow, own: Label, now: datetime) -> str:
    """{"schedule": id}: it goes on, and is trusted as its person is."""
    mine, which = Schedules(tx, review.principal_id, now), str(review.arguments.get("schedule"))
    try:
        row = await mine.resume(which)
    except Refused as refusal:
        return str(refusal)
    await schedules.trust(tx, row.id, own)
    return f"Goes on: {line(row)}"


OWN_CALLS: Mapping[str, OwnCall] = {"resume_schedule": resume_schedule}
"""By the name in `tool`; no tool of the agent may have one of these names."""
