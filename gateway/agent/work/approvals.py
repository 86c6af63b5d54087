"""Approvals and grants: the rules for a person's answer, the same for commands, web page and terminal."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import takewhile

from gateway.domain.conversation.diff import for_chat
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.work.trees import DoubtAnswer
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.inbox import InboxRow
from gateway.store.people import principals
from gateway.store.trust import grants, reviews
from gateway.store.trust.grants import GrantBound, GrantCall, GrantRow, GrantTerms
from gateway.store.trust.reviews import DOUBT, ReviewRow

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
    """The answer counts for nothing; the text says why."""


async def settle_review(
    tx: Connection,
    asked: PrincipalId | None,
    which: str,
    now: datetime,
    *,
    yes: bool,
    by: str,
    in_chat: bool = False,
    comment: str = "",
) -> ReviewRow:
    """Take an answer of the person `asked`; raises `NotDecided`.

    Whoever is not asked hears the same as of a number that does not exist. A chat (`in_chat`) cuts a long change off,
    so no yes to one is taken there.
    """
    row = await own_question(tx, asked, which)
    if yes and in_chat and for_chat(row.preview)[1]:
        raise NotDecided(f"{row.name} is too long to show here. {where_shown_whole(row)}")
    decided = await reviews.decide(tx, row.id, row.asked_id, now, yes=yes, by=by, comment=comment)
    if decided is None:
        over = {"open": "expired", "expired": "expired", "closed": "was closed"}
        raise NotDecided(f"{row.name} {over.get(row.state, 'was already answered')}; this answer changes nothing.")
    return decided


async def own_question(conn: Connection, asked: PrincipalId | None, which: str) -> ReviewRow:
    """The question of this name, if it was this person's to answer; raises `NotDecided`."""
    id = reviews.number(which)
    row = await reviews.get(conn, id) if id is not None else None
    if row is None or asked is None or row.asked_id != asked:
        raise NotDecided("No approval with that number is waiting; /approve lists them.")
    return row


async def answer_by_command(
    tx: Connection, at: AddressRow, arrival: InboxRow, which: str, now: datetime, *, yes: bool
) -> str:
    """What the commands say; without a number the list of what waits for whoever wrote, in a group of what is its."""
    asked = await speaker(tx, at, arrival)
    if not which:
        rows = await reviews.list_open(tx, asked, now) if asked else []
        shown = [_review_line(row, now) for row in rows if at.private or row.address_id == at.id]
        return "\n".join([*shown, "", "Answer with /approve or /deny and the number."]) if shown else NO_APPROVALS
    names, comment = _with_comment(which)
    by = arrival.sender
    return "\n".join([await _answered(tx, asked, each, now, yes=yes, by=by, comment=comment) for each in names])


def _with_comment(argument: str) -> tuple[Sequence[str], str]:
    """The numbers at its beginning, and the words behind them, which a task gets with its answer."""
    words = argument.split()
    names = list(takewhile(lambda word: reviews.number(word) is not None, words))
    if not names:
        return words[:1], ""
    return names[:MOST_AT_ONCE], argument.split(maxsplit=len(names))[len(names)] if len(words) > len(names) else ""


async def _answered(
    tx: Connection, asked: PrincipalId | None, which: str, now: datetime, *, yes: bool, by: str, comment: str
) -> str:
    try:
        row = await settle_review(tx, asked, which, now, yes=yes, by=by, in_chat=True, comment=comment)
    except NotDecided as refusal:
        return str(refusal)
    if row.tool == DOUBT:
        return f"{row.name}: {_FOLLOWS[DoubtAnswer.of(approved=yes, comment=comment)]}"
    if row.kind == "review":
        return f"{row.name} is {'approved' if yes else 'denied'}; the task goes on with your answer."
    done = "approved; it runs now, and its result comes as a message." if yes else "denied; nothing was changed."
    return f"{row.name} is {done}"


def why_asked(row: ReviewRow) -> str:
    """Why a person is asked, in one line."""
    if row.tool == DOUBT:
        return "The gateway stopped during this call of a task, so nobody knows whether it took effect."
    if row.kind == "review":
        return "A task in the background waits for your answer."
    if row.task_id is None:
        return "The gateway itself asks."
    if row.label is Label.OWNER and row.act is not ToolClass.IRREVERSIBLE:
        return "It is a fork, which asks before every act."
    if row.act is ToolClass.IRREVERSIBLE:
        return "It can't be undone, so it always needs your approval."
    return f"It would {_WOULD[row.act]}, and this conversation contains other people's text."


def where_shown_whole(row: ReviewRow) -> str:
    """Where a change too long for a chat is shown and decided."""
    return f"Read and answer it on the web page, under Approvals, or with `supaclaw reviews show {row.name}`."


def _review_line(row: ReviewRow, now: datetime) -> str:
    return f"{row.name}: {row.tool}{'' if row.expires_at is None else _left(row.expires_at - now)}"


def _left(time: timedelta) -> str:
    minutes = max(1, round(time.total_seconds() / 60))
    return f"; {minutes} min left" if minutes < 120 else f"; {round(minutes / 60)} h left"


async def speaker(tx: Connection, at: AddressRow, arrival: InboxRow) -> PrincipalId | None:
    """Who gives an answer, by their account; None for words that count as nobody's: sent with a token, or forwarded."""
    if at.channel == "api" or at.address.by_token or not arrival.sender:
        return None
    return at.principal_id if at.private else await principals.find(tx, arrival.sender)


MOST_TIMES, LONGEST_GRANT = 1_000, timedelta(days=30)
NO_GRANTS = "No grants."
GRANT_USAGE = "Write it like `/grant A17 5 24h`, or `/grant A17 5 24h amount<=50 total 200` where a number may differ."

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_TERMS = re.compile(
    r"(?P<times>\d{1,4})\s+(?P<count>\d{1,5})(?P<unit>[mhd])"
    r"(?:\s+(?P<name>\w{1,64})<=(?P<most>\d{1,12}(?:\.\d{1,6})?)(?:\s+total\s+(?P<total>\d{1,12}(?:\.\d{1,6})?))?)?",
    re.ASCII,
)


def parse_terms(text: str, now: datetime) -> GrantTerms:
    """Terms like `5 24h amount<=50 total 200`; raises `NotDecided`."""
    match = _TERMS.fullmatch(text.strip())
    if match is None:
        raise NotDecided(GRANT_USAGE)
    times, lasts = int(match["times"]), timedelta(**{_UNITS[match["unit"]]: int(match["count"])})
    if not 0 < times <= MOST_TIMES or not timedelta() < lasts <= LONGEST_GRANT:
        raise NotDecided(f"Allow it 1 to {MOST_TIMES:,} times, for 30 days at most.")
    total = Decimal(match["total"]) if match["total"] else None
    bound = GrantBound(match["name"], Decimal(match["most"]), total) if match["name"] else None
    return GrantTerms(times, now + lasts, bound)


async def give_grant(
    tx: Connection, asked: PrincipalId | None, which: str, terms: GrantTerms, *, by: str, in_chat: bool = False
) -> GrantRow:
    """Allow, in advance, the call that a question is about; only its person can. Raises `NotDecided`."""
    row = await own_question(tx, asked, which)
    if row.task_id is None or row.kind == "review":
        raise NotDecided(f"{row.name} is asked once only; it can't be allowed in advance.")
    if in_chat and for_chat(row.preview)[1]:
        raise NotDecided(f"{row.name} is too long to show here. {where_shown_whole(row)}")
    if terms.bound and isinstance(value := row.arguments.get(terms.bound.name), bool | str | None):
        raise NotDecided(f"{terms.bound.name} is {value!r} in {row.name}, so it can't be bounded; name a number of it.")
    call = GrantCall(row.principal_id, row.asked_id, row.tool, row.act, row.arguments, row.base)
    return await grants.give(tx, call, terms, by)


async def revoke_grant(tx: Connection, given_by: PrincipalId | None, which: str, now: datetime, *, by: str) -> GrantRow:
    """Take one back; raises `NotDecided`."""
    id = grants.number(which)
    row = await grants.revoke(tx, id, given_by, now, by) if id is not None and given_by is not None else None
    if row is None:
        raise NotDecided("You have no such grant; /grant lists them.")
    return row


def grant_line(grant: GrantRow) -> str:
    """What it allows, in one line."""
    bounded = f", {grant.bounded} up to {grant.at_most:f}" if grant.at_most is not None else ""
    left = f" (at most {grant.sum_left:f} in all)" if grant.sum_left is not None else ""
    until = f"{grant.times_left} times until {grant.expires_at:%Y-%m-%d %H:%M} UTC"
    return f"{grant.name}: {grant.tool}{bounded}{left}, {until}"
