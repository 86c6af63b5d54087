"""Serves one request of any of the APIs: its session is found or started, its turn made once, its answer told."""

import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias
from uuid import NAMESPACE_URL, uuid4, uuid5

from fastapi import Depends, Header
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from gateway.domain.channels.routing import Ignore
from gateway.domain.conversation import digest
from gateway.domain.conversation.client import NOTHING, Brought
from gateway.domain.conversation.inbound import Address, Inbound
from gateway.domain.ids import InboxId
from gateway.domain.json import JsonObject
from gateway.domain.people.scopes import Scope
from gateway.flow.inbound.persistence import Accepted
from gateway.store import sessions
from gateway.store.delivery import addresses, requests
from gateway.store.transcript import messages
from gateway.web.accept import accept
from gateway.web.auth.access import Caller, needs, principal_of, sender_of
from gateway.web.files import keep
from gateway.web.http.errors import Refused
from gateway.web.http.multipart import UploadedFile
from gateway.web.live.sse import EventStream, Frame
from gateway.web.site import Site
from gateway.web.v1 import turn
from gateway.web.v1.answer_format import check
from gateway.web.v1.chores import chore
from gateway.web.v1.keep_alive import json_response
from gateway.web.v1.request import Asked
from gateway.web.v1.response_wire import ResponseObject
from gateway.web.v1.tools import refuse_clash
from gateway.web.v1.turn import Spoken
from gateway.web.v1.wire import Completion

CHANNEL = "api"
MAX_INLINE = 24 * 1024 * 1024
"""Bytes of a request, which is held in memory as a whole, with the files in it."""

OWN = ("default",)
"""What the agent is called that people chat with."""

Shape: TypeAlias = Completion | ResponseObject
"""How one API tells an answer: in one piece, or as a stream of frames."""
Shaped: TypeAlias = Callable[[InboxId | None, int], Shape]
"""Makes the shape of the answer to one arrival at a Unix time."""
Chatter = Annotated[Caller, Depends(needs(Scope.CHAT, body=MAX_INLINE, members=True))]
Name = Annotated[str | None, Header(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]


@dataclass(frozen=True, slots=True)
class Named:
    """What the headers say: which session, and which request this is a repeat of.

    Open WebUI names its chat; OpenAI's clients count their own retries. What a body says of its `user` names nothing.
    """

    x_session: Name = None
    x_openwebui_chat_id: Name = None
    idempotency_key: Name = None
    x_stainless_retry_count: Annotated[int, Header()] = 0

    @property
    def session(self) -> str | None:
        """The session's name."""
        return self.x_session or self.x_openwebui_chat_id


async def serve(site: Site, caller: Caller, named: Named, body: bytes, asked: Asked, shaped: Shaped) -> Response:
    """The answer, in one piece or as it is written. The turn goes on when the client leaves."""
    now = site.backend.clock.now()
    created = int(now.timestamp())
    if (told := chore(asked)) is not None:
        return await _respond(site, caller, asked, shaped(None, created), _at_once(told), {})
    if caller.as_owner:
        refuse_clash(asked.options.tools, site.backend.tools())
    key = named.idempotency_key or await _key(site, caller, body, again=named.x_stainless_retry_count > 0)
    address, fork = await _address(site, caller, named, asked, key)
    await _refuse_unknown_results(site, address, asked)
    whose = principal_of(site.backend, caller)
    files = [
        await keep(site, whose, UploadedFile(file.name, file.mime, file.pieces()), CHANNEL) for file in asked.files
    ]
    inbound = Inbound(
        address,
        sender_of(site.backend, caller),
        asked.text,
        key,
        now,
        solo=True,
        earlier=asked.earlier,
        attachments=tuple(file.announced for file in files),
        as_owner=caller.as_owner,
        fork=fork,
        client=_brought(asked),
    )
    accepted = await accept(site, inbound)
    if isinstance(accepted.decision, Ignore):
        raise Refused(400, "invalid_value", f"The message was ignored: {accepted.decision.reason}.", param="messages")
    if fork is not None and accepted.address_id is not None:
        async with site.backend.database.connection() as conn:
            address = (await addresses.get(conn, accepted.address_id)).address
    pieces = turn.stream(site.backend, accepted) if asked.stream else _waited(site, accepted)
    shape = shaped(accepted.inbox_id, created)
    return await _respond(site, caller, asked, shape, pieces, {"X-Session": address.chat})


async def _respond(
    site: Site,
    caller: Caller,
    asked: Asked,
    shape: Shape,
    pieces: AsyncGenerator[str | Spoken, None],
    headers: dict[str, str],
) -> Response:
    if asked.stream:
        return EventStream(_frames(pieces, asked, shape), site.rights.hold(caller.session), headers)

    async def whole() -> JsonObject:
        try:
            async with aclosing(pieces):
                spoken = await site.while_entitled(_last(pieces), caller.session)
            await _check(asked, spoken)
        except Refused as refused:
            refused.headers.update(headers)
            raise
        return shape.whole(spoken)

    return await json_response(whole(), headers)


async def _frames(
    pieces: AsyncGenerator[str | Spoken, None], asked: Asked, shape: Shape
) -> AsyncGenerator[Frame, None]:
    for frame in shape.opening():
        yield frame
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Spoken):
                    await _check(asked, piece)
                for frame in shape.piece(piece) if isinstance(piece, str) else shape.closing(piece):
                    yield frame
    except Refused as refused:
        for frame in shape.failed(refused):
            yield frame


async def _check(asked: Asked, spoken: Spoken) -> None:
    """Raises `Refused` for an answer in another form than asked for; calls are not the answer yet."""
    if asked.options.answer_format is not None and not spoken.calls:
        await run_in_threadpool(check, asked.options.answer_format, spoken.text)


async def _waited(site: Site, accepted: Accepted) -> AsyncGenerator[str | Spoken, None]:
    yield await turn.wait(site.backend, accepted)


async def _at_once(spoken: Spoken) -> AsyncGenerator[str | Spoken, None]:
    if spoken.text:
        yield spoken.text
    yield spoken


async def _last(pieces: AsyncGenerator[str | Spoken, None]) -> Spoken:
    async for piece in pieces:
        if isinstance(piece, Spoken):
            return piece
    raise RuntimeError("a turn ended without an answer")


def _brought(asked: Asked) -> Brought | None:
    wanted = asked.options if asked.model in OWN else replace(asked.options, agent=asked.model)
    options = None if wanted == NOTHING else wanted.to_json()
    return Brought(options, asked.results) if options or asked.results else None


async def _key(site: Site, caller: Caller, body: bytes, *, again: bool) -> str:
    """The key of a request that names none. A client's own retry has that of the same request before."""
    same = hashlib.sha256(body).hexdigest()
    before = None
    if again:
        async with site.backend.database.connection() as conn:
            before = await requests.latest_key(conn, caller.account, same)
    return before or f"{same}{uuid4().hex}"


async def _address(site: Site, caller: Caller, named: Named, asked: Asked, key: str) -> tuple[Address, str | None]:
    """The session named; else that of the same request before; else the one with what was said; else a new one.

    Beside the one with what was said stands the new one, for the case that somebody else is quicker to go on with it.
    """
    if named.session is not None:
        return Address(CHANNEL, caller.account, named.session), None
    # two equal requests at once must meet in one new session, so its name follows from their key
    fresh = str(uuid5(NAMESPACE_URL, f"supaclaw:{caller.account}:{key}"))
    told = digest.of(each.told for each in asked.earlier)
    async with site.backend.database.connection() as conn:
        if named.idempotency_key is not None or named.x_stainless_retry_count > 0:
            before = await requests.address_of(conn, caller.account, key)
            if before is not None:
                return before, None
        if told != digest.EMPTY:
            same = await sessions.by_digest(conn, principal_of(site.backend, caller), caller.account, told)
            if same is not None:
                return same, fresh
    return Address(CHANNEL, caller.account, fresh), None


async def _refuse_unknown_results(site: Site, address: Address, asked: Asked) -> None:
    """A session that goes on knows its calls; one that begins is told of them before their results."""
    unknown = {result.call_id for result in asked.results}
    if not unknown:
        return
    async with site.backend.database.connection() as conn:
        session = await sessions.current(conn, address)
        if session is None:
            unknown -= {call.id for said in asked.earlier for call in said.calls}
        else:
            unknown = {id for id in unknown if await messages.handed(conn, session, id) is None}
    if unknown:
        message = f"No call in this session has the id {min(unknown)!r}."
        raise Refused(400, "unknown_call", message, param="messages")
