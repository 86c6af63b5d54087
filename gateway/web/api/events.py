"""Events as JSON: a conversation's snapshot and live events, and the steps of tasks."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, assert_never
from uuid import UUID

from fastapi import APIRouter, Depends, Header
from fastapi.responses import Response

from gateway.agent.work import task_trees
from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import MessageId, TaskId
from gateway.domain.json import Json
from gateway.domain.people.credentials import Scope, permits
from gateway.flow import live
from gateway.store.files import attachments
from gateway.store.transcript import messages
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import steps, trees
from gateway.store.work.steps import StepRow
from gateway.web.api.messages import Chat, address_of
from gateway.web.auth.access import Caller, needs
from gateway.web.http.errors import Refused
from gateway.web.live.conversations import Snapshot
from gateway.web.live.entries import attachment_json
from gateway.web.live.sse import EventStream, Frame, to_json
from gateway.web.site import AtSite, Site

PACE_SECONDS = 0.02
_MESSAGE_FIELDS = ("id", "kind", "text", "origin", "sender", "final", "call_id", "tool", "answered_by")
_STEP_FIELDS = (
    *("id", "kind", "name", "ok", "message_id"),
    *("tokens_in", "tokens_out", "tokens_cached", "tokens_thinking"),
    *("cost_usd", "thinking_usd", "latency_ms"),
)

router = APIRouter()


Reader = Annotated[Caller, Depends(needs(Scope.CHAT, Scope.READ))]
LastId = Annotated[int, Header(alias="Last-Event-ID", ge=0)]


@router.get("/api/events", responses={204: {"description": "The tasks are over, and there are no new steps."}, 404: {}})
async def events(
    site: AtSite,
    caller: Reader,
    chat: Chat = "main",
    task: UUID | None = None,
    master: UUID | None = None,
    last: LastId = 0,
) -> Response:
    """Stream events, each a JSON object with a `type`: of a chat, of one task, or of the tree of a `master`.

    A chat begins with a snapshot after each reconnect. The steps of tasks continue after `Last-Event-ID`.
    """
    followed = task or master
    if not permits(caller.scopes, Scope.CHAT if followed is None else Scope.READ):
        raise Refused(403, "missing_scope", f"This token lacks the scope {'chat' if followed is None else 'read'}.")
    if followed is None:
        return EventStream(_chat_frames(site, address_of(caller, chat)), site.rights.hold(caller.session))
    found = await find_task(site, followed)
    if last and await is_finished(site, found, last, tree=task is None):
        return Response(status_code=204)
    return EventStream(trace_frames(site, found, last, tree=task is None), site.rights.hold(caller.session))


async def _chat_frames(site: Site, address: Address) -> AsyncGenerator[Frame, None]:
    async with aclosing(site.conversations.follow(address, pace=PACE_SECONDS)) as following:
        async for update in following:
            if isinstance(update, Snapshot):
                yield Frame(to_json(_snapshot(update)))
                continue
            for event in update:
                if (data := await _event(site, event)) is not None:
                    yield Frame(to_json(data))


def _snapshot(update: Snapshot) -> dict[str, Json]:
    session, rows = str(update.session) if update.session else None, [_message(row) for row in update.rows]
    return {"type": "snapshot", "session_id": session, "messages": rows, "written": update.written}


def _message(row: MessageRow) -> dict[str, Json]:
    return {
        **{name: getattr(row, name) for name in _MESSAGE_FIELDS},
        "sent_at": row.sent_at.isoformat(),
        "read": row.seq is not None,
        "closed": row.closed_at is not None,
        "files": [attachment_json(file) for file in row.attached],
    }


async def _event(site: Site, event: live.LiveEvent) -> dict[str, Json] | None:
    match event:
        case live.TurnStarted(ids):
            return {"type": "turn_started", "messages": list(ids)}
        case live.TextWritten(text):
            return {"type": "text", "text": text}
        case live.TextDropped():
            return {"type": "text_dropped"}
        case live.ModelAwaited(model, error, seconds):
            return {"type": "waiting", "model": model, "error": error, "seconds": seconds}
        case live.ToolStarted(call_id, name, arguments):
            return {"type": "tool_started", "call_id": call_id, "name": name, "arguments": arguments}
        case live.ToolEnded(call_id, text, failed, ms):
            return {"type": "tool_ended", "call_id": call_id, "text": text, "failed": failed, "duration_ms": ms}
        case live.MessageStored(id):
            return await _stored(site, id)
        case live.TurnEnded():
            return {"type": "turn_ended"}
        case live.ThinkingWritten() | live.ToolProgressed() | live.SessionReplaced() | live.Overrun():
            return None
        case _:
            assert_never(event)


async def _stored(site: Site, id: MessageId) -> dict[str, Json] | None:
    async with site.database.connection() as conn:
        row = await messages.get(conn, id)
        [row] = await attachments.with_attachments(conn, [row]) if row else [None]
    return {"type": "message", "message": _message(row)} if row else None


async def find_task(site: Site, task: UUID) -> TaskId:
    """The owner's task of a tree; raises `NoSuchTask`."""
    return await site.database.read(lambda conn: task_trees.find_task(conn, site.owner.id, str(task)))


async def is_finished(site: Site, task: TaskId, since: int, *, tree: bool) -> bool:
    """Whether no step can follow this one."""
    async with site.database.connection() as conn:
        counts = await trees.counts(conn, task, tree=tree)
        over = all(status.final for status in counts)
        return over and not await steps.trace(conn, task, tree=tree, since=since, most=1)


async def trace_frames(site: Site, task: TaskId, since: int, *, tree: bool) -> AsyncGenerator[Frame, None]:
    """Yield each step after `since`, the states when they change, and an end."""
    async with aclosing(site.trees.traces.follow(task, tree=tree, since=since)) as following:
        async for progress in following:
            for step in progress.steps:
                yield Frame(to_json(step_json(step)), id=str(step.id))
            counts: dict[str, Json] = {status.value: number for status, number in progress.counts.items()}
            yield Frame(to_json({"type": "end" if progress.over else "state", "counts": counts}))


def step_json(step: StepRow) -> dict[str, Json]:
    """The step as JSON: numbers and references; of failed models the names and kinds of error."""
    return {
        "type": "step",
        **{name: getattr(step, name) for name in _STEP_FIELDS},
        "task_id": str(step.task_id),
        "failed": [{"model": each.model, "error": each.error} for each in step.failed],
        "at": step.created_at.isoformat(),
    }
