"""Handing a message in, and telling what became of it."""

from typing import assert_never

from gateway.domain.inbound import Inbound
from gateway.domain.json import Json
from gateway.domain.routing import Edit, Ignore, RunCommand, StartTurn
from gateway.flow.inbound.persist import Accepted
from gateway.web.site import Site

MAX_TEXT = 2_000_000
"""Characters of one message; what a model cannot read at once becomes a file."""

KEY = r"^[^\x00-\x1f\x7f]+$"
"""Names that clients choose: anything printable, for it is stored as text."""


async def accept(site: Site, inbound: Inbound) -> Accepted:
    """Committed when this returns, however long the database is away; raises `TryAgainLater`, `Refused` at a stop."""
    [accepted] = await site.backend.inbox.accept([inbound])
    if accepted.later is not None:
        accepted = await site.while_running(accepted.stored())
    site.conversations.begun()
    return accepted


def outcome(accepted: Accepted) -> dict[str, Json]:
    """As JSON; `reason` is there when the message was ignored."""
    told: dict[str, Json] = {
        "kind": _kind(accepted),
        "session_id": str(accepted.session_id) if accepted.session_id else None,
        "message_id": accepted.message_id,
        "inbox_id": accepted.inbox_id,
        "duplicate": accepted.duplicate,
    }
    if isinstance(accepted.decision, Ignore):
        told["reason"] = accepted.decision.reason
    return told


def _kind(accepted: Accepted) -> str:
    match accepted.decision:
        case StartTurn():
            return "message"
        case RunCommand():
            return "command"
        case Edit():
            return "edit"
        case Ignore():
            return "ignored"
        case _:
            assert_never(accepted.decision)
