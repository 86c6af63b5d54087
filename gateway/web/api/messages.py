"""Sending messages and files to the agent from a program, and waiting for its answers."""

import asyncio
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from gateway.domain.channels.routing import StartTurn
from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import InboxId
from gateway.domain.json import Json
from gateway.domain.people.credentials import Scope
from gateway.flow.inbound.answers import Answer
from gateway.flow.inbound.persistence import Accepted
from gateway.store.delivery import addresses, inbox
from gateway.store.files import attachments
from gateway.store.transcript import messages
from gateway.web import files
from gateway.web.auth.access import MESSAGE_BODY, Caller, needs
from gateway.web.files import MAX_FILES, attachments_for
from gateway.web.http.bodies import json_body, parsed, validated
from gateway.web.http.errors import existing
from gateway.web.live.entries import attachment_json
from gateway.web.site import MAX_MESSAGE_CHARS, PRINTABLE, AtSite, Site, accept_from_owner, accepted_json

CHANNEL = "terminal"
Chat = Annotated[str, Query(min_length=1, max_length=200, pattern=PRINTABLE)]

router = APIRouter()
Sender = Annotated[Caller, Depends(needs(Scope.CHAT, body=MESSAGE_BODY))]


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
