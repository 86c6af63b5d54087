"""Edits and deletions: what no turn has taken changes in place; the rest is withdrawn, and the next turn is told."""

from collections.abc import Sequence
from dataclasses import replace

from gateway.agent.work.task_trees import top_task
from gateway.domain.conversation.inbound import Arrival
from gateway.domain.ids import InboxId, InstanceId, MessageId
from gateway.domain.principals import Label
from gateway.domain.text import marks
from gateway.flow.outbound.parts import send_notice
from gateway.store.connection.pool import Connection
from gateway.store.delivery import inbox
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import tool_calls, unread
from gateway.store.transcript.messages import DELETED, REVISED, MessageRow
from gateway.store.trust import reviews
from gateway.store.work import tasks

MAX_NOTICE = 1_000
NO_COMMAND = "An edited command isn't run. Send the command as a new message."
CLOSED = "Closed: {}, because the message that led to it was {}. Write again what you want."


async def revise(
    tx: Connection, at: AddressRow, arrived: InboxId, arrival: Arrival, changed: str, label: Label, own: InstanceId
) -> MessageId | None:
    """Apply the edit or deletion of the message with the platform id `changed`; the caller holds the session.

    Returns the message that says so to the agent; None if the agent never had the old text, or it is the same. An edit
    of a message that is being answered now joins the turn. Open questions that the old text led to are closed.
    """
    said = arrival.inbound
    if not said.deleted and (early := await unread.edit(tx, at.id, changed, said.text, label)) is not None:
        return early
    old = await unread.withdraw(tx, at.id, changed, "deleted" if said.deleted else "edited", said.text)
    if not old:
        before = await inbox.find_duplicate(tx, replace(said, platform_id=changed))
        if before is not None and before.kind == "command" and not said.deleted:
            await send_notice(tx, at, NO_COMMAND, MAX_NOTICE)
        return None
    if old[-1].seq is None and old[-1].origin != REVISED:  # no turn has read it
        return old[-1].id
    if closed := await _close_questions(tx, old):
        told = CLOSED.format(", ".join(closed), "deleted" if said.deleted else "edited")
        await send_notice(tx, at, told, MAX_NOTICE)
    sent_at = old[0].sent_at
    text, origin = marks.edited(said.text, sent_at), REVISED
    if said.deleted:
        text, origin = marks.deleted(sent_at), DELETED
    note = replace(said, text=text, platform_id=changed)
    id = await unread.receive(
        tx, at.session_id, at.principal_id, at.id, note, label, arrival.id, arrived, origin=origin
    )
    if said.deleted or not old[-1].open:
        await unread.note(tx, at.session_id, id)
    else:
        await tasks.create_chat(tx, at.principal_id, at.session_id, own)
    return id


async def _close_questions(tx: Connection, old: Sequence[MessageRow]) -> list[str]:
    calls = await tool_calls.of_answers(tx, [row.id for row in old])
    return await reviews.close(tx, calls=calls, of_trees=[top_task(old[0].principal_id, call) for call in calls])
