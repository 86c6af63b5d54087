"""Writing to the agent from a program, and waiting for its answer."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from gateway.domain.ids import InboxId
from gateway.domain.inbound import Address, Inbound
from gateway.domain.json import Json
from gateway.domain.routing import StartTurn
from gateway.domain.scopes import Scope
from gateway.flow.answers import Answer
from gateway.flow.inbound import Accepted
from gateway.store import addresses, messages, requests
from gateway.web.accepting import KEY, MAX_TEXT, accept, outcome
from gateway.web.access import Caller, needs, owner_as_sender
from gateway.web.errors import Refused
from gateway.web.site import AtSite, Site

CHANNEL = "terminal"
Chat = Annotated[str, Query(min_length=1, max_length=200, pattern=KEY)]

router = APIRouter()


class NewMessage(BaseModel):
    """A message for the agent; `client_id` makes sending it again harmless."""

    text: str = Field(min_length=1, max_length=MAX_TEXT)
    chat: str = Field("main", min_length=1, max_length=200, pattern=KEY)
    client_id: str = Field(min_length=1, max_length=100, pattern=KEY)


def address_of(caller: Caller, chat: str) -> Address:
    """Every credential has conversations of its own."""
    return Address(CHANNEL, caller.account, chat)


@router.post("/api/messages", status_code=202)
async def send(site: AtSite, caller: Annotated[Caller, Depends(needs(Scope.CHAT))], message: NewMessage) -> Response:
    """Take a message or a slash command."""
    at = address_of(caller, message.chat)
    now = site.backend.clock.now()
    accepted = await accept(site, Inbound(at, owner_as_sender(site.backend), message.text, message.client_id, now))
    return JSONResponse(outcome(accepted), 202)


@router.get("/api/answers/{inbox_id}")
async def answer(
    site: AtSite,
    caller: Annotated[Caller, Depends(needs(Scope.CHAT))],
    inbox_id: Annotated[int, Path(ge=1, lt=2**63)],
    wait: Annotated[float, Query(ge=0, le=60)] = 25,
) -> Response:
    """The answer to one message, waiting up to `wait` seconds; 204 when there is none yet."""
    accepted = await _arrived(site, caller, InboxId(inbox_id))
    try:
        async with asyncio.timeout(wait):
            return JSONResponse(_told(await site.while_running(site.backend.answers.wait(accepted))))
    except TimeoutError:
        return Response(status_code=204)


async def _arrived(site: Site, caller: Caller, id: InboxId) -> Accepted:
    async with site.backend.database.connection() as conn:
        arrival = await requests.arrival(conn, CHANNEL, caller.account, id)
        if arrival is None:
            raise Refused(404, "not_found", "This token sent no such message.")
        row = await messages.get(conn, arrival.message_id) if arrival.message_id else None
        at = await addresses.get(conn, arrival.address_id)
    session = row.session_id if row else at.session_id
    return Accepted(StartTurn(), arrival.id, arrival.address_id, session, arrival.message_id)


def _told(answer: Answer) -> dict[str, Json]:
    return {
        "text": answer.text,
        "notice": answer.notice,
        "message_id": answer.message_id,
        "tokens_in": answer.spent.tokens_in,
        "tokens_out": answer.spent.tokens_out,
        "cost_usd": answer.spent.cost_usd,
    }
