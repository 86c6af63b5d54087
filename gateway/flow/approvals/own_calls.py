"""Calls of the gateway itself that a person approves: each runs once, in the transaction that reports its result."""

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
"""Runs the call of a question; the label is that of the person's own words. Returns one line about the result."""


async def resume_schedule(tx: Connection, review: ReviewRow, own: Label, now: datetime) -> str:
    """Arguments {"schedule": id}: resume it, with the label of its person."""
    mine, which = Schedules(tx, review.principal_id, now, most=None), str(review.arguments.get("schedule"))
    try:
        row = await mine.resume(which)
    except InvalidSchedule as refusal:
        return str(refusal)
    await schedules.trust(tx, row.id, own)
    return f"Resumed: {schedule_line(row)}"


async def vouch_files(tx: Connection, review: ReviewRow, own: Label, _now: datetime) -> str:
    """Arguments {"paths": hashes by path}: give exactly these contents the label of the person."""
    paths = TypeAdapter(dict[str, str]).validate_python(review.arguments["paths"])
    await vouch(tx, review.principal_id, paths, own)
    return f"Vouched for {len(paths)} file{'s' * (len(paths) != 1)}; /new starts a conversation that trusts them."


async def embed(_tx: Connection, review: ReviewRow, _own: Label, _now: datetime) -> str:
    """Arguments {"model", "rows"}: the job finds the approval itself within minutes."""
    return f"{review.arguments['model']} embeds your memories; `supaclaw status` shows the progress."


EMBED = "embed_memory"

OWN_CALLS: Mapping[str, OwnCall] = {"resume_schedule": resume_schedule, VOUCH: vouch_files, EMBED: embed}
"""Calls by the name in `tool`; no tool of the agent may have one of these names."""
