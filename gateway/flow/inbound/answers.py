"""Answers: wait for the reply to one message, whichever process commits it."""

from contextlib import suppress
from dataclasses import dataclass

from gateway.beside import at_most
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import MessageId
from gateway.flow.inbound.persistence import Accepted
from gateway.flow.live import Live, MessageStored, Overrun, Subscription, TurnEnded
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery import inbox
from gateway.store.transcript import messages
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import steps
from gateway.store.work.steps import ModelUse

POLL_SECONDS = 1.0
NOTHING = ModelUse()


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply to a message; a `notice` is from the gateway, not the agent. A closed message has no answer row."""

    text: str
    notice: bool
    message_id: MessageId | None = None
    spent: ModelUse = NOTHING


class Answers:
    """Reads the rows on live events, and polls for replies of other processes."""

    def __init__(self, database: Database, live: Live) -> None:
        self._database = database
        self._live = live

    async def wait(self, accepted: Accepted) -> Answer:
        """Wait for the answer to exactly this message; works for a duplicate and after a restart."""
        accepted = await accepted.stored()
        if accepted.session_id is None:
            return Answer("", notice=True)
        with self._live.subscribe(accepted.session_id) as events:
            while True:
                answer = None
                with suppress(TryAgainLater):  # the message is accepted, so an outage only delays the answer
                    answer = await self._database.read(lambda conn: _answer_to(conn, accepted))
                if answer is not None:
                    return answer
                await _something_stored(events)


async def _something_stored(events: Subscription) -> None:
    async with at_most(POLL_SECONDS):
        async for event in events:
            if isinstance(event, MessageStored | TurnEnded | Overrun):
                return


async def _answer_to(conn: Connection, accepted: Accepted) -> Answer | None:
    message = accepted.message_id
    if message is None:
        if accepted.inbox_id is None:
            return Answer("", notice=True)
        arrival = await inbox.get(conn, accepted.inbox_id)
        if arrival.handled_at is None:
            return None
        message = arrival.message_id
    asked = await messages.get(conn, message) if message else None
    if asked is None or asked.kind != "user":
        return _said(asked, NOTHING) if asked else Answer("", notice=True)
    if asked.closed_at is not None:
        return Answer("Stopped." if asked.stopped else "", notice=True)
    if asked.answered_by is None:
        return None
    answer = await messages.get(conn, asked.answered_by)
    assert answer is not None, "answers are never deleted"
    task = answer.task_id
    return _said(answer, await steps.spent_on(conn, task, asked.created_at) if task else NOTHING)


def _said(row: MessageRow, spent: ModelUse) -> Answer:
    return Answer(row.text, row.kind == "notice", row.id, spent)
