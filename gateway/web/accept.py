"""Accepts a message from a client, and reports the outcome."""

from typing import assert_never

from gateway.domain.channels.routing import Edit, Ignore, RunCommand, StartTurn
from gateway.domain.conversation.inbound import Inbound
from gateway.domain.json import Json
from gateway.flow.inbound.persistence import Accepted
from gateway.web.site import Site

MAX_TEXT = 2_000_000
"""The most characters of one message; text too long for a model is stored as a file."""

KEY = r"^[^\x00-\x1f\x7f]+$"
"""Names chosen by clients: any printable text."""


async def accept(site: Site, inbound: Inbound) -> Accepted:
    """Wait until it is committed, even through a database outage; raises `TryAgainLater`, `Refused` on a stop."""
    [accepted] = await site.backend.inbox.accept([inbound])
    if accepted.later is not None:
        accepted = await site.while_entitled(accepted.stored(), None)
    site.conversations.notify_accepted()
    return accepted


def outcome(accepted: Accepted) -> dict[str, Json]:
    """The outcome as JSON; `reason` is included if the message was ignored."""
    body: dict[str, Json] = {
        "kind": _kind(accepted),
        "session_id": str(accepted.session_id) if accepted.session_id else None,
        "message_id": accepted.message_id,
        "inbox_id": accepted.inbox_id,
        "duplicate": accepted.duplicate,
    }
    if isinstance(accepted.decision, Ignore):
        body["reason"] = accepted.decision.reason
    return body


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
