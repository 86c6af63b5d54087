"""Standing grants: how a person allows a call in advance, by command, page or terminal. Nothing else gives one."""

import re
from datetime import datetime, timedelta
from decimal import Decimal

from gateway.agent.approvals import NotDecided, question, where_whole
from gateway.domain.conversation.diff import for_chat
from gateway.domain.ids import PrincipalId
from gateway.store.connection.pool import Connection
from gateway.store.trust import grants
from gateway.store.trust.grants import Bound, Call, GrantRow, Terms

MOST_TIMES, LONGEST = 1_000, timedelta(days=30)
NONE = "No grants."
USAGE = "Write it like `/grant A17 5 24h`, or `/grant A17 5 24h amount<=50 total 200` where a number may differ."

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_TERMS = re.compile(
    r"(?P<times>\d{1,4})\s+(?P<count>\d{1,5})(?P<unit>[mhd])"
    r"(?:\s+(?P<name>\w{1,64})<=(?P<most>\d{1,12}(?:\.\d{1,6})?)(?:\s+total\s+(?P<total>\d{1,12}(?:\.\d{1,6})?))?)?",
    re.ASCII,
)


def parse(text: str, now: datetime) -> Terms:
    """Terms like `5 24h amount<=50 total 200`; raises `NotDecided`."""
    match = _TERMS.fullmatch(text.strip())
    if match is None:
        raise NotDecided(USAGE)
    times, lasts = int(match["times"]), timedelta(**{_UNITS[match["unit"]]: int(match["count"])})
    if not 0 < times <= MOST_TIMES or not timedelta() < lasts <= LONGEST:
        raise NotDecided(f"Allow it 1 to {MOST_TIMES:,} times, for 30 days at most.")
    total = Decimal(match["total"]) if match["total"] else None
    bound = Bound(match["name"], Decimal(match["most"]), total) if match["name"] else None
    return Terms(times, now + lasts, bound)


async def give(
    tx: Connection, asked: PrincipalId | None, which: str, terms: Terms, *, by: str, in_chat: bool = False
) -> GrantRow:
    """Allow, in advance, the call that a question is about; only its person can. Raises `NotDecided`."""
    row = await question(tx, asked, which)
    if row.task_id is None or row.kind == "review":
        raise NotDecided(f"{row.name} is asked once only; it can't be allowed in advance.")
    if in_chat and for_chat(row.preview)[1]:
        raise NotDecided(f"{row.name} is too long to show here. {where_whole(row)}")
    if terms.bound and isinstance(value := row.arguments.get(terms.bound.name), bool | str | None):
        raise NotDecided(f"{terms.bound.name} is {value!r} in {row.name}, so it can't be bounded; name a number of it.")
    call = Call(row.principal_id, row.asked_id, row.tool, row.act, row.arguments, row.base)
    return await grants.give(tx, call, terms, by)


async def revoke(tx: Connection, given_by: PrincipalId | None, which: str, now: datetime, *, by: str) -> GrantRow:
    """Take one back; raises `NotDecided`."""
    id = grants.number(which)
    row = await grants.revoke(tx, id, given_by, now, by) if id is not None and given_by is not None else None
    if row is None:
        raise NotDecided("You have no such grant; /grant lists them.")
    return row


def line(grant: GrantRow) -> str:
    """What it allows, in one line."""
    bounded = f", {grant.bounded} up to {grant.at_most:f}" if grant.at_most is not None else ""
    left = f" (at most {grant.sum_left:f} in all)" if grant.sum_left is not None else ""
    until = f"{grant.times_left} times until {grant.expires_at:%Y-%m-%d %H:%M} UTC"
    return f"{grant.name}: {grant.tool}{bounded}{left}, {until}"
