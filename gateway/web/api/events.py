"""Conversations of programs: messages and files to the agent, answers, live events, and the steps of tasks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, assert_never
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from gateway.agent.work import task_trees
from gateway.domain.channels.routing import StartTurn
from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import InboxId, MessageId, TaskId
from gateway.domain.json import Json
from gateway.domain.people.credentials import Scope, permits
from gateway.flow import live
from gateway.flow.inbound.answers import Answer
from gateway.flow.inbound.persistence import Accepted
from gateway.store.delivery import addresses, inbox
from gateway.store.files import attachments
from gateway.store.transcript import messages
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import steps, trees
from gateway.store.work.steps import StepRow
from gateway.web import files
from gateway.web.auth.access import MESSAGE_BODY, Caller, needs
from gateway.web.files import MAX_FILES, attachments_for
from gateway.web.http.bodies import json_body, parsed, validated
from gateway.web.http.errors import Refused, existing
from gateway.web.live.conversations import Snapshot
from gateway.web.live.entries import attachment_json
from gateway.web.live.sse import EventStream, Frame, to_json
from gateway.web.site import MAX_MESSAGE_CHARS, PRINTABLE, AtSite, Site, accept_from_owner, accepted_json

CHANNEL = "terminal"
Chat = Annotated[str, Query(min_length=1, max_length=200, pattern=PRINTABLE)]

router = APIRouter()
Sender = Annotated[Caller, Depends(needs(Scope.CHAT, body=MESSAGE_BODY))]
Reader = Annotated[Caller, Depends(needs(Scope.CHAT, Scope.READ))]
LastId = Annotated[int, Header(alias="Last-Event-ID", ge=0)]

PACE_SECONDS = 0.02
_MESSAGE_FIELDS = ("id", "kind", "text", "origin", "sender", "final", "call_id", "tool", "answered_by")
_STEP_FIELDS = (
    *("id", "kind", "name", "ok", "message_id"),
    *("tokens_in", "tokens_out", "tokens_cached", "tokens_thinking"),
    *("cost_usd", "thinking_usd", "latency_ms"),
)


class NewMessage(BaseModel):
    """A message for the agent; a repeated `client_id` is a duplicate, `files` are ids from `POST /api/files`."""

    text: str = Field("", max_length=MAX_MESSAGE_CHARS)
    files: list[UUID] = Field([], max_length=MAX_FILES)
    chat: str = Field("main", min_length=1, max_length=200, pattern=PRINTABLE)
    client_id: str = Field(min_length=1, max_length=100, pattern=PRINTABLE)


def address_of(caller: Caller, chat: str) -> Address:
    """The address of a chat; every credential has its own chats."""
    return Address(CHANNEL, caller.account, chat)


@router.post("/api/messages", status_code=202, openapi_extra=json_body(NewMessage.model_json_schema()))
async def send(request: Request, site: AtSite, caller: Sender) -> Response:
    """Send a message or a slash command."""
    message = await parsed(await request.body(), lambda body: validated(NewMessage, body))
    at, files = address_of(caller, message.chat), await attachments_for(site, message.files)
    sent = await accept_from_owner(site, at, message.text, message.client_id, files, trusted=caller.as_owner)
    return JSONResponse(accepted_json(sent), 202)


@router.get("/api/answers/{inbox_id}", responses={204: {"description": "None yet"}})
async def answer(
    site: AtSite,
    caller: Annotated[Caller, Depends(needs(Scope.CHAT))],
    inbox_id: Annotated[int, Path(ge=1, lt=2**63)],
    wait: Annotated[float, Query(ge=0, le=60)] = 25,
) -> Response:
    """Get the answer to a message; waits up to `wait` seconds, then 204 if there is none yet."""
    accepted = await _accepted(site, caller, InboxId(inbox_id))
    try:
        async with asyncio.timeout(wait):
            found = await site.while_entitled(site.chat.answers.wait(accepted), caller.session)
    except TimeoutError:
        return Response(status_code=204)
    return JSONResponse(_answer_json(found, await _sent_files(site, accepted, found)))


async def _accepted(site: Site, caller: Caller, id: InboxId) -> Accepted:
    async with site.database.connection() as conn:
        found = await inbox.find(conn, CHANNEL, caller.account, id)
        arrival = existing(found, "No such message was sent with this token.")
        row = await messages.get(conn, arrival.message_id) if arrival.message_id else None
        at = await addresses.get(conn, arrival.address_id)
    session = row.session_id if row else at.session_id
    return Accepted(StartTurn(), arrival.id, arrival.address_id, session, arrival.message_id)


async def _sent_files(site: Site, accepted: Accepted, answer: Answer) -> list[Json]:
    """The files that the agent sent between the message and its answer."""
    async with site.database.connection() as conn:
        question = await messages.get(conn, accepted.message_id) if accepted.message_id else None
        if question is None or question.seq is None:
            return []
        rows = await attachments.with_attachments(conn, await messages.shown(conn, question.session_id))
    last = max((row.seq or 0 for row in rows if row.id == answer.message_id), default=question.seq)
    between = [row for row in rows if row.kind == "assistant" and question.seq < (row.seq or 0) <= last]
    return [attachment_json(file) for row in between for file in row.attached]


def _answer_json(answer: Answer, files: list[Json]) -> dict[str, Json]:
    spent = {name: getattr(answer.spent, name) for name in ("tokens_in", "tokens_out", "cost_usd")}
    return {"text": answer.text, "notice": answer.notice, "message_id": answer.message_id, "files": files, **spent}


files.add_routes(router, "/api/files", CHANNEL, sends=needs(Scope.CHAT), reads=needs(Scope.READ))


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
