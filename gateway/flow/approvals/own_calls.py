"""Calls of the gateway itself that a person allows: each made once, in the transaction that tells its result."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TypeAlias

from pydantic import TypeAdapter

from gateway.agent.work.schedules import Schedules, schedule_line
from gateway.domain.principals import Label
from gateway.flow.labels import VOUCH, vouch
from gateway.store.connection.pool import Connection
from gateway.store.trust.reviews import ReviewRow
from gateway.store.work import schedules
from gateway.timetable.schedules import InvalidSchedule

OwnCall: TypeAlias = Callable[[Connection, ReviewRow, Label, datetime], Awaitable[str]]
"""Makes the call of a question whose person's own trust level is the label; says in one line what it did."""


async def resume_schedule(tx: Connection, review: ReviewRow, own: Label, now: datetime) -> str:
    """{"schedule": id}: it goes on, and is trusted as its person is."""
    mine, which = Schedules(tx, review.principal_id, now), str(review.arguments.get("schedule"))
    try:
        row = await mine.resume(which)
    except InvalidSchedule as refusal:
        return str(refusal)
    await schedules.trust(tx, row.id, own)
    return f"Resumed: {schedule_line(row)}"


async def vouch_files(tx: Connection, review: ReviewRow, own: Label, _now: datetime) -> str:
    """{"paths": hashes by path}: exactly these contents are the person's own words from now on."""
    paths = TypeAdapter(dict[str, str]).validate_python(review.arguments["paths"])
    await vouch(tx, review.principal_id, paths, own)
    return f"Vouched for {len(paths)} file{'s' * (len(paths) != 1)}; /new starts a conversation that trusts them."


async def embed(_tx: Connection, review: ReviewRow, _own: Label, _now: datetime) -> str:
    """{"model", "rows"}: the job looks itself for what was allowed, and goes on within minutes."""
    return f"{review.arguments['model']} embeds your memories; `supaclaw status` shows the progress."


EMBED = "embed_memory"

OWN_CALLS: Mapping[str, OwnCall] = {"resume_schedule": resume_schedule, VOUCH: vouch_files, EMBED: embed}
"""By the name in `tool`; no tool of the agent may have one of these names."""
