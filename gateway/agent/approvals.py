"""What people answer to the agent's questions: the rules that hold on every way, command, page and terminal."""

from datetime import datetime

from gateway.domain.diff import for_chat
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import AddressId, PrincipalId
from gateway.domain.texts import one_line
from gateway.store import addresses, reviews
from gateway.store.inbox import InboxRow
from gateway.store.people import principals
from gateway.store.pool import Connection
from gateway.store.reviews import ReviewRow

NONE = "No question waits for your answer."
_SUBJECT = 80


class NotDecided(OwnerMustAct):
    """The answer counts for nothing; the text says why."""


async def settle(
    tx: Connection, asked: PrincipalId | None, which: str, now: datetime, *, yes: bool, by: str, in_chat: bool = False
) -> ReviewRow:
    """Take an answer of the person `asked`; raises `NotDecided`.

    Whoever is not asked hears the same as of a number that does not exist. A chat (`in_chat`) cuts a long change off,
    so no yes to one is taken there.
    """
    id = reviews.number(which)
    row = await reviews.get(tx, id) if id is not None else None
    if row is None or asked is None or row.asked_id != asked:
        raise NotDecided("No question of that number waits for your answer; /approve lists those that do.")
    if yes and in_chat and for_chat(row.preview)[1]:
        raise NotDecided(f"{row.name} is too long to be shown here. {where_whole(row)}")
    decided = await reviews.decide(tx, row.id, asked, now, yes=yes, by=by)
    if decided is None:
        state = "expired" if row.state in ("open", "expired") else "was answered before"
        raise NotDecided(f"{row.name} {state}; nothing was changed by your answer.")
    return decided


def where_whole(row: ReviewRow) -> str:
    """Where a change too long for a chat is shown and decided."""
    return f"Read and answer it on the web page, under Approvals, or with `supaclaw reviews show {row.name}`."


def line(row: ReviewRow, now: datetime) -> str:
    """A question in a list."""
    left = "" if row.expires_at is None else f"; {max(1, round((row.expires_at - now).total_seconds() / 60))} min left"
    first = row.preview.partition("\n")[0].removeprefix("--- ")
    return f"{row.name}: {row.tool}, {one_line(first, _SUBJECT)}{left}"


async def waiting(tx: Connection, asked: PrincipalId | None, now: datetime, at: AddressId | None = None) -> str:
    """The list of what waits for this person; with `at` only what was asked in that chat."""
    rows = await reviews.list_open(tx, asked, now) if asked else []
    shown = [line(row, now) for row in rows if at is None or row.address_id == at]
    return "\n".join([*shown, "", "Answer with /approve or /deny and the number."]) if shown else NONE


async def speaker(tx: Connection, arrival: InboxRow) -> PrincipalId | None:
    """Who gives an answer, by their account; None for words that count as nobody's: sent with a token, or forwarded."""
    if not arrival.sender or arrival.channel == "api":
        return None
    at = await addresses.get(tx, arrival.address_id)
    return at.principal_id if at.private else await principals.find(tx, arrival.sender)
