"""Approvals and grants: the rules for answers, shared by commands, the page and the terminal."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import takewhile

from gateway.agent.memory.remember import FORGET
from gateway.domain.conversation.diff import for_chat
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.errors import OwnerMustAct, required
from gateway.domain.ids import PrincipalId
from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.domain.work.plans import PLAN, PLANNED_CALLS
from gateway.domain.work.trees import DoubtAnswer
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.inbox import InboxRow
from gateway.store.people import principals
from gateway.store.trust import grants, reviews
from gateway.store.trust.grants import GrantBound, GrantCall, GrantRow, GrantTerms
from gateway.store.trust.reviews import DOUBT, ERASE_MINE, EXPORT_MINE, ReviewRow

MOST_AT_ONCE = 10
NO_APPROVALS = "No approvals are waiting."

_WOULD = {
    ToolClass.READ: "read something",
    ToolClass.WRITE: "write a file",
    ToolClass.PERSIST: "outlive the conversation",
    ToolClass.NET: "reach the network",
    ToolClass.SEND: "send something to others",
    ToolClass.ACT: "change something elsewhere",
    ToolClass.RUN: "run a program",
}


_FOLLOWS = {
    DoubtAnswer.AGAIN: "the call runs again.",
    DoubtAnswer.RAN: "the task goes on; the call isn't repeated.",
    DoubtAnswer.GIVE_UP: "the task ends; the call isn't repeated.",
}


class NotDecided(OwnerMustAct):
    """The answer has no effect; the text says why."""


async def settle_review(
    tx: Connection,
    person: PrincipalId | None,
    which: str,
    now: datetime,
    *,
    yes: bool,
    by: str,
    in_chat: bool = False,
    comment: str = "",
) -> ReviewRow:
    """Record the answer of `person`; raises `NotDecided`.

    The error for another person's question is that for an unknown number. In a chat (`in_chat`), which cuts long
    texts, a change that isn't shown as a whole can't be approved.
    """
    row = await own_question(tx, person, which)
    if yes and in_chat:
        _require_shown_whole(row)
    decided = await reviews.decide(tx, row.id, row.asked_id, now, yes=yes, by=by, label=Label.OWNER, comment=comment)
    if decided is None:
        over = {"open": "expired", "expired": "expired", "closed": "was closed"}
        raise NotDecided(f"{row.name} {over.get(row.state, 'was already answered')}; this answer changes nothing.")
    return decided


async def own_question(conn: Connection, person: PrincipalId | None, which: str) -> ReviewRow:
    """The question with this name, if it was put to this person; raises `NotDecided`."""
    id = reviews.number(which)
    row = await reviews.get(conn, id) if id is not None else None
    if row is None or person is None or row.asked_id != person:
        raise NotDecided("No approval with that number is waiting; list them to see their numbers.")
    return row


def _require_shown_whole(row: ReviewRow) -> None:
    if for_chat(row.preview)[1]:
        raise NotDecided(f"{row.name} is too long to show here. {where_shown_whole(row)}")


async def answer_by_command(
    tx: Connection, at: AddressRow, arrival: InboxRow, which: str, now: datetime, *, yes: bool
) -> str:
    """The reply to /approve or /deny. Without a number it lists the author's open questions, in a group those of it."""
    person = await speaker(tx, at, arrival)
    if not which:
        rows = await reviews.list_open(tx, person, now) if person else []
        here = [row for row in rows if at.private or row.address_id == at.id]
        shown = [f"{row.name}: {row.tool}{_left(row.expires_at - now) if row.expires_at else ''}" for row in here]
        return "\n".join([*shown, "", "Answer with /approve or /deny and the number."]) if shown else NO_APPROVALS
    names, comment = _with_comment(which)
    by = arrival.sender
    await reviews.lock_to_answer(tx, [id for each in names if (id := reviews.number(each)) is not None])
    return "\n".join([await _answered(tx, person, each, now, yes=yes, by=by, comment=comment) for each in names])


def _with_comment(argument: str) -> tuple[Sequence[str], str]:
    """The numbers at the beginning, and the text after them, which a task gets as a comment."""
    words = argument.split()
    names = list(takewhile(lambda word: reviews.number(word) is not None, words))
    if not names:
        return words[:1], ""
    return names[:MOST_AT_ONCE], argument.split(maxsplit=len(names))[len(names)] if len(words) > len(names) else ""


async def _answered(
    tx: Connection, person: PrincipalId | None, which: str, now: datetime, *, yes: bool, by: str, comment: str
) -> str:
    try:
        row = await settle_review(tx, person, which, now, yes=yes, by=by, in_chat=True, comment=comment)
    except NotDecided as refusal:
        return str(refusal)
    if row.tool == DOUBT:
        return f"{row.name}: {_FOLLOWS[DoubtAnswer.of(approved=yes, comment=comment)]}"
    if row.kind == "review":
        return f"{row.name} is {'approved' if yes else 'denied'}; the task goes on with your answer."
    done = "approved; it runs now, and its result comes as a message." if yes else "denied; nothing was changed."
    return f"{row.name} is {done}"


def why_asked(row: ReviewRow) -> str:
    """The reason for a question, in one line."""
    if row.tool == DOUBT:
        return "The gateway stopped during this call of a task, so nobody knows whether it took effect."
    if row.kind == "review" and row.tool.startswith("mcp_"):
        return "A tool's server asks you this, in its own words. Never give it a password or a key."
    if row.kind == "review":
        return "A task in the background waits for your answer."
    if row.tool == PLANNED_CALLS:
        return "Some values of these planned calls aren't your words or entries. A yes is for all of the calls."
    if row.tool == FORGET and row.act is ToolClass.IRREVERSIBLE:
        return "It would hide more than the memory itself; /memory restore undoes it."
    if row.tool == PLAN:
        return "Each run of the schedule may make these calls without a question."
    if row.tool in (EXPORT_MINE, ERASE_MINE):
        return "You wrote /mydata."
    if row.task_id is None:
        return "A program asks, not your agent." if row.tool == "cron" else "The gateway itself asks."
    if row.label is Label.OWNER and row.act is not ToolClass.IRREVERSIBLE:
        return "It is a fork, which asks before every act."
    if row.act is ToolClass.IRREVERSIBLE:
        return "It can't be undone, so it always needs your approval."
    return f"It would {_WOULD[row.act]}, and this conversation contains other people's text."


def where_shown_whole(row: ReviewRow) -> str:
    """The advice for a change that is too long for a chat."""
    return f"Read and answer it on the web page, in the Inbox, or with `supaclaw approvals show {row.name}`."


def _left(time: timedelta) -> str:
    minutes = max(1, round(time.total_seconds() / 60))
    return f"; {minutes} min left" if minutes < 120 else f"; {round(minutes / 60)} h left"


async def speaker(tx: Connection, at: AddressRow, arrival: InboxRow) -> PrincipalId | None:
    """The person who gives an answer, by their account; None if it came with a token or was forwarded."""
    if at.channel == "api" or at.address.by_token or not arrival.sender:
        return None
    return at.principal_id if at.private else await principals.find(tx, arrival.sender)


MOST_TIMES, LONGEST_GRANT = 1_000, timedelta(days=30)
NO_GRANTS = "No grants."
GRANT_USAGE = "Write it like `A17 5 24h`, or `A17 5 24h amount<=50 total 200` where a number may differ."

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_TERMS = re.compile(
    r"(?P<times>\d{1,4})\s+(?P<count>\d{1,5})(?P<unit>[mhd])"
    r"(?:\s+(?P<name>\w{1,64})<=(?P<most>\d{1,12}(?:\.\d{1,6})?)(?:\s+total\s+(?P<total>\d{1,12}(?:\.\d{1,6})?))?)?",
    re.ASCII,
)


def parse_terms(text: str, now: datetime) -> GrantTerms:
    """Terms like `5 24h amount<=50 total 200`; raises `NotDecided`."""
    match = required(_TERMS.fullmatch(text.strip()), NotDecided(GRANT_USAGE))
    times, lasts = int(match["times"]), timedelta(**{_UNITS[match["unit"]]: int(match["count"])})
    if not 0 < times <= MOST_TIMES or not timedelta() < lasts <= LONGEST_GRANT:
        raise NotDecided(f"Allow it 1 to {MOST_TIMES:,} times, for 30 days at most.")
    total = Decimal(match["total"]) if match["total"] else None
    bound = GrantBound(match["name"], Decimal(match["most"]), total) if match["name"] else None
    return GrantTerms(times, now + lasts, bound)


async def give_grant(
    tx: Connection, person: PrincipalId | None, which: str, terms: GrantTerms, *, by: str, in_chat: bool = False
) -> GrantRow:
    """Allow the call of a question in advance, as the person it was put to; raises `NotDecided`."""
    row = await own_question(tx, person, which)
    if row.task_id is None or row.kind == "review" or row.tool == PLANNED_CALLS:
        raise NotDecided(f"{row.name} is asked once only; it can't be allowed in advance.")
    if in_chat:
        _require_shown_whole(row)
    if terms.bound and not _is_number(value := row.arguments.get(terms.bound.name)):
        raise NotDecided(f"{terms.bound.name} is {value!r} in {row.name}, so it can't be bounded; name a number of it.")
    call = GrantCall(row.principal_id, row.asked_id, row.tool, row.act, row.arguments, row.base)
    return await grants.give(tx, call, terms, by)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


async def revoke_grant(tx: Connection, given_by: PrincipalId | None, which: str, now: datetime, *, by: str) -> GrantRow:
    """Revoke a grant; raises `NotDecided`."""
    id = grants.number(which)
    row = await grants.revoke(tx, id, given_by, now, by) if id is not None and given_by is not None else None
    return required(row, NotDecided("You have no such grant; list them to see their numbers."))


def grant_line(grant: GrantRow) -> str:
    """The terms of a grant, in one line."""
    bounded = f", {grant.bounded} up to {grant.at_most:f}" if grant.at_most is not None else ""
    left = f" (at most {grant.sum_left:f} in all)" if grant.sum_left is not None else ""
    until = f"{grant.times_left} times until {grant.expires_at:%Y-%m-%d %H:%M} UTC"
    return f"{grant.name}: {grant.tool}{bounded}{left}, {until}"
