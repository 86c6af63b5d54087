"""The OpenAI-compatible routes: the last user message is a turn of the agent, the session is found or started."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated
from uuid import NAMESPACE_URL, uuid4, uuid5

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse, Response

from gateway.domain import digest
from gateway.domain.inbound import Address, Inbound
from gateway.domain.routing import Ignore
from gateway.domain.scopes import Scope
from gateway.flow.inbound.persist import Accepted
from gateway.store import addresses, requests, sessions
from gateway.web.accept import accept
from gateway.web.access import Caller, needs, owner_as_sender
from gateway.web.bodies import parsed
from gateway.web.errors import Refused
from gateway.web.files import keep
from gateway.web.multipart import UploadedFile
from gateway.web.site import AtSite, Site
from gateway.web.sse import EventStream, Frame, to_json
from gateway.web.v1 import turn, wire
from gateway.web.v1.request import ChatRequest, parse
from gateway.web.v1.wire import Completion

CHANNEL = "api"
MAX_INLINE = 24 * 1024 * 1024
"""Bytes of a request, which is held in memory as a whole, with the files in it."""

router = APIRouter()
Chatter = Annotated[Caller, Depends(needs(Scope.CHAT, body=MAX_INLINE))]
Name = Annotated[str | None, Header(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]


@dataclass(frozen=True, slots=True)
class _Named:
    """What the headers say: which session, and which request this is a repeat of."""

    x_session: Name = None
    idempotency_key: Name = None


@router.get("/v1/models", dependencies=[Depends(needs(Scope.CHAT))])
async def models(site: AtSite) -> Response:
    """The agents that can be asked."""
    created = int(site.backend.clock.now().timestamp())
    return JSONResponse({"object": "list", "data": [wire.model(name, created) for name in site.backend.models()]})


@router.get("/v1/models/{name}", dependencies=[Depends(needs(Scope.CHAT))])
async def model(site: AtSite, name: str) -> Response:
    """One of them."""
    if name not in site.backend.models():
        raise Refused(404, "model_not_found", f"The model '{name}' does not exist.", param="model")
    return JSONResponse(wire.model(name, int(site.backend.clock.now().timestamp())))


@router.post("/v1/chat/completions", responses={404: {}, 502: {}})
async def complete(request: Request, site: AtSite, caller: Chatter, named: Annotated[_Named, Depends()]) -> Response:
    """Answer the last user message, in one piece or as it is written. The turn goes on when the client leaves."""
    models = site.backend.models()
    asked = await parsed(await request.body(), lambda body: parse(body, models))
    address, fork = await _address(site, caller, named, asked)
    key = named.idempotency_key or str(uuid4())
    now = site.backend.clock.now()
    sender = owner_as_sender(site.backend)
    files = [await keep(site, UploadedFile(file.name, file.mime, file.pieces()), CHANNEL) for file in asked.files]
    attachments = tuple(file.announced for file in files)
    inbound = Inbound(
        address,
        sender,
        asked.text,
        key,
        now,
        solo=True,
        earlier=asked.earlier,
        attachments=attachments,
        as_owner=caller.as_owner,
        fork=fork,
    )
    accepted = await accept(site, inbound)
    if isinstance(accepted.decision, Ignore):
        raise Refused(400, "invalid_value", f"The message was ignored: {accepted.decision.reason}.", param="messages")
    completion = Completion(f"chatcmpl-{accepted.inbox_id}", asked.model, int(now.timestamp()))
    if fork is not None and accepted.address_id is not None:
        async with site.backend.database.connection() as conn:
            address = (await addresses.get(conn, accepted.address_id)).address
    headers = {"X-Session": address.chat}
    if asked.stream:
        return EventStream(_frames(site, accepted, asked, completion), site.rights.hold(caller.session), headers)
    try:
        said = await site.while_entitled(turn.wait(site.backend, accepted), caller.session)
    except Refused as refused:
        refused.headers.update(headers)
        raise
    return JSONResponse(completion.whole(said.text, said.spent), headers=headers)


async def _address(site: Site, caller: Caller, named: _Named, asked: ChatRequest) -> tuple[Address, str | None]:
    """The session named; else that of the same request before; else the one with what was said; else a new one.

    Beside the one with what was said stands the new one, for the case that somebody else is quicker to go on with it.
    """
    if named.x_session is not None:
        return Address(CHANNEL, caller.account, named.x_session), None
    # two equal requests at once must meet in one new session, so its name follows from their key
    key = named.idempotency_key
    fresh = str(uuid4() if key is None else uuid5(NAMESPACE_URL, f"supaclaw:{caller.account}:{key}"))
    told = digest.of((earlier.role, earlier.text) for earlier in asked.earlier)
    async with site.backend.database.connection() as conn:
        if key is not None:
            before = await requests.address_of(conn, caller.account, key)
            if before is not None:
                return before, None
        if told != digest.EMPTY:
            same = await sessions.by_digest(conn, site.backend.owner.id, caller.account, told)
            if same is not None:
                return same, fresh
    return Address(CHANNEL, caller.account, fresh), None


async def _frames(
    site: Site, accepted: Accepted, asked: ChatRequest, completion: Completion
) -> AsyncGenerator[Frame, None]:
    yield Frame(to_json(completion.opening()))
    try:
        async with aclosing(turn.stream(site.backend, accepted)) as pieces:
            async for piece in pieces:
                if isinstance(piece, str):
                    yield Frame(to_json(completion.piece(piece)))
                    continue
                yield Frame(to_json(completion.closing()))
                if asked.include_usage:
                    yield Frame(to_json(completion.usage(piece.spent)))
                yield Frame("[DONE]")
    except Refused as refused:
        yield Frame(to_json(refused.body()))
