"""Questions: a call that needs a yes is stored, put to the person, and closed when nobody answers."""

import json
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog

from gateway.agent.approvals import where_whole
from gateway.agent.policy import Policy
from gateway.domain.access import GROUP
from gateway.domain.channel import Button
from gateway.domain.clock import Clock
from gateway.domain.diff import for_chat
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import PrincipalId, ReviewId
from gateway.domain.json import JsonObject
from gateway.domain.texts import storable
from gateway.domain.tools import Caller, Change, ToolFailed
from gateway.domain.transcript import Notice
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.people import People
from gateway.store import addresses, inbox, reviews, sessions
from gateway.store.addresses import AddressRow
from gateway.store.people import principals
from gateway.store.pool import Connection, Database
from gateway.store.reviews import Question, ReviewRow
from gateway.store.transcript.messages import MessageRow

MOST = 5
"""Questions that wait for one person at the same time."""
WAITING = "Nothing is changed yet: the user was asked and sees the change. Tell them so, and do not call this again."

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks the person for whom a change lasts: in a group the one who asked for it; unattended in their own chat."""

    database: Database
    people: People
    proactive: ProactiveMessages
    clock: Clock

    def policy(self, principal: PrincipalId) -> Policy:
        """For the tools that work for this principal."""

        async def ask(tool: str, arguments: JsonObject, change: Change, caller: Caller) -> JsonObject:
            if "\\u0000" in (exact := json.dumps(arguments, ensure_ascii=False)) or storable(exact) != exact:
                raise ToolFailed("binary", "The arguments have characters that cannot be shown; use plain text.")
            review = await self.database.run(lambda tx: self._ask(tx, principal, tool, arguments, change, caller))
            try:
                await self.look()
            except TryAgainLater as exc:  # the next look puts it
                log.warning("questions.wait", error=str(exc))
            return {"waiting_for_approval": f"A{review}", "message": WAITING}

        return Policy(self.people.own_label(principal), ask)

    async def look(self) -> datetime | None:
        """Put what nobody has been shown, close what is too old; when the next one is."""
        async with self.database.connection() as conn:
            untold = await reviews.list_untold(conn, MOST)
        for review in untold:
            if row := await self.database.run(partial(self._put, id=review)):
                self.proactive.committed(row)
        return await self.database.run(lambda tx: reviews.expire(tx, self.clock.now()))

    async def place(self, tx: Connection, review: ReviewRow) -> AddressRow | None:
        """The chat that the question belongs to, locked with its session; None if the person has none."""
        if review.address_id is not None:
            at = await addresses.lock_by_id(tx, review.address_id)
            if at.principal_id == review.principal_id and at.channel != "api":
                await sessions.lock(tx, at.session_id)
                return at
        return await self.proactive.destination(tx, review.asked_id)

    async def _ask(
        self, tx: Connection, principal: PrincipalId, tool: str, arguments: JsonObject, change: Change, caller: Caller
    ) -> ReviewId:
        asked, now = await self._person(tx, principal, caller), self.clock.now()
        question = Question(
            principal,
            asked,
            tool,
            arguments,
            change.preview,
            caller.label,
            change.base,
            caller.session,
            caller.address,
            caller.task,
            caller.ordinal,
        )
        await reviews.hold(tx, asked)
        if before := await reviews.asked_before(tx, question, now):
            if before.state == "denied":
                raise ToolFailed("denied", f"The user said no to exactly this, as {before.name}; do not ask again.")
            return before.id
        waiting = [row.name for row in await reviews.list_open(tx, asked, now) if row.task_id is not None]
        if len(waiting) >= MOST:
            names = ", ".join(waiting)
            raise ToolFailed("too_many_questions", f"{names} are already waiting for an answer; nothing was changed.")
        if for_chat(change.preview)[1] and not self.people.is_owner(asked):
            raise ToolFailed("too_long", "The user has to approve this, and it is too long to show; make it shorter.")
        return await reviews.ask(tx, question, now)

    async def _person(self, tx: Connection, principal: PrincipalId, caller: Caller) -> PrincipalId:
        """Whose yes it needs: for a group that of the one who asked, or the owner's if nobody did."""
        if not any(GROUP in identity for identity in await principals.identities(tx, principal)):
            return principal
        said = await inbox.spoke_last(tx, caller.session)
        return await principals.ensure_member(tx, said[1], said[0]) if said else self.people.owner.id

    async def _put(self, tx: Connection, id: ReviewId) -> MessageRow | None:
        review = await reviews.get(tx, id)
        assert review is not None, "questions are never deleted"
        at = await self.place(tx, review)
        if at is None or not await reviews.mark_told(tx, id):
            return None
        kept, sent, buttons = _rendered(review)
        if await sessions.label(tx, at.session_id) >= review.label:
            kept = sent  # else the transcript, and every copy of it, would hold words trusted less than it is
        return await self.proactive.say(
            tx, at, at.principal_id, Notice(kept), label=review.label, origin="gateway", sent=sent, buttons=buttons
        )


def _rendered(review: ReviewRow) -> tuple[str, str, tuple[Button, ...]]:
    """The question without what the agent wrote, and as a chat shows it: in a block, between the gateway's words."""
    shown, left = for_chat(review.preview)
    name, whole = review.name, where_whole(review)
    head = f"**{name}: may I make this change?** ({review.tool})\n"
    until = "" if review.expires_at is None else f" It expires at {review.expires_at:%H:%M} UTC."
    buttons = Button("Approve", f"/approve {name}"), Button("Deny", f"/deny {name}")
    answer = f"{left} more lines not shown. {whole}" if left else f"/approve {name} or /deny {name}."
    sent = f"{head}```\n{shown}\n```\n{answer}{until}"
    return f"{head}{whole}{until}", sent, buttons[1:] if left else buttons
