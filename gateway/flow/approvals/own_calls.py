"""Calls of the gateway itself that a person approves: each runs once, in the transaction that reports its result."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TypeAlias

from pydantic import TypeAdapter

from gateway.agent.work.schedules import Schedules, schedule_line
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.principals import Label
from gateway.flow.labels import VOUCH, vouch
from gateway.store.connection.pool import Connection
from gateway.store.people import principals
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ERASE_MEMBER, ERASE_MINE, ReviewQuestion, ReviewRow
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


ERASING = "It needs the gateway stopped, so a yes only shows the command. They get a receipt when it is done."


async def ask_to_erase(tx: Connection, review: ReviewRow, _own: Label, now: datetime) -> str:
    """Ask the owner, once, to erase a member's data: it needs the gateway stopped."""
    owner, member = await principals.lock_owner(tx), await principals.get(tx, review.principal_id)
    account = next(iter(await principals.identities(tx, member.id)))
    preview = f"{member.name} ({account}) asks you to have all that is theirs erased. {ERASING}"
    what = ERASE_MEMBER, {"account": account}, preview, Label.KNOWN
    question = ReviewQuestion(owner.id, owner.id, *what, lasts=None, act=ToolClass.IRREVERSIBLE)
    if not any(row.digest == question.digest for row in await reviews.list_open(tx, owner.id, now)):
        await reviews.ask(tx, question, now)
    return "The owner is asked. When it is done, you get a receipt here; until then nothing is gone."


async def erase_member(_tx: Connection, review: ReviewRow, _own: Label, _now: datetime) -> str:
    """Arguments {"account"}: say how, for it can't be done while the gateway runs."""
    return f"Run: supaclaw down && supaclaw pairing erase {review.arguments['account']} && supaclaw up"


async def embed(_tx: Connection, review: ReviewRow, _own: Label, _now: datetime) -> str:
    """Arguments {"model", "rows"}: the job finds the approval itself within minutes."""
    return f"{review.arguments['model']} embeds your memories; `supaclaw status` shows the progress."


EMBED = "embed_memory"

OWN_CALLS: Mapping[str, OwnCall] = {
    "resume_schedule": resume_schedule,
    VOUCH: vouch_files,
    EMBED: embed,
    ERASE_MINE: ask_to_erase,
    ERASE_MEMBER: erase_member,
}
"""Calls by the name in `tool`; no tool of the agent may have one of these names."""
