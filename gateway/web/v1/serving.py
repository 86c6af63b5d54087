"""Serves one request of any of the APIs: finds or starts its session, runs its turn once, sends its answer.

Titles and tags that chat programs ask for are answered by rule; a slow JSON response is kept alive with spaces."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias
from uuid import NAMESPACE_URL, uuid4, uuid5

import structlog
from fastapi import Depends, Header
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from gateway.beside import cancel
from gateway.domain.channels.routing import Ignore
from gateway.domain.conversation import digest
from gateway.domain.conversation.inbound import NO_OPTIONS, Address, ClientInput, Inbound
from gateway.domain.conversation.model import ToolCall
from gateway.domain.ids import InboxId
from gateway.domain.json import Json, JsonObject
from gateway.domain.people.credentials import Scope
from gateway.domain.text.texts import clipped, key_digest
from gateway.domain.work.trees import MODELS
from gateway.flow.inbound.persistence import Accepted
from gateway.store.delivery import addresses, inbox
from gateway.store.transcript import sessions, tool_calls
from gateway.web.auth.access import Caller, needs, principal_of, sender_of
from gateway.web.files import keep
from gateway.web.http.bodies import UploadedFile
from gateway.web.http.errors import Refused
from gateway.web.live.sse import ClosedStream, EventStream, Frame
from gateway.web.site import Site, accept
from gateway.web.v1 import turn
from gateway.web.v1.request import ChatRequest
from gateway.web.v1.request_fields import check_answer, refuse_clash
from gateway.web.v1.turn import NO_LIMITS, Pieces, TurnAnswer, cut
from gateway.web.v1.wire import Completion, ResponseObject

CHANNEL = "api"
MAX_INLINE = 24 * 1024 * 1024
"""Bytes of a request, which is held in memory as a whole, including its files."""

Shape: TypeAlias = Completion | ResponseObject
"""The wire format of an answer: in one piece, or as a stream of frames."""
Shaped: TypeAlias = Callable[[InboxId | None, int], Shape]
"""Makes the wire format for the answer to one message; the second argument is a Unix time."""
Chatter = Annotated[Caller, Depends(needs(Scope.CHAT, body=MAX_INLINE, members=True))]
Name = Annotated[str | None, Header(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]


@dataclass(frozen=True, slots=True)
class SessionHeaders:
    """The headers that name the session, and the request that this one repeats.

    Open WebUI names its chat; OpenAI's clients count their own retries. The `user` of a body names no session.
    """

    x_session: Name = None
    x_openwebui_chat_id: Name = None
    idempotency_key: Name = None
    x_stainless_retry_count: Annotated[int, Header()] = 0

    @property
    def session(self) -> str | None:
        """The session's name."""
        return self.x_session or self.x_openwebui_chat_id


async def serve(
    site: Site, caller: Caller, named: SessionHeaders, body: bytes, request: ChatRequest, shaped: Shaped
) -> Response:
    """Answer in one piece, or while the answer is written. The turn continues when the client disconnects."""
    now = site.clock.now()
    created = int(now.timestamp())
    if (answer := rule_answer(request)) is not None:
        return await _respond(site, caller, request, shaped(None, created), _finished_pieces(answer), {})
    if caller.as_owner:
        refuse_clash(request.options.tools, site.tools.names())
    chosen = named.idempotency_key and key_digest(named.idempotency_key)
    key = chosen or await _key(site, caller, body, again=named.x_stainless_retry_count > 0)
    address, fork = await _address(site, caller, named, request, key)
    await _refuse_unknown_results(site, address, request)
    whose = principal_of(site, caller)
    files = [
        await keep(site, whose, UploadedFile(file.name, file.mime, file.pieces()), CHANNEL, apart=not caller.as_owner)
        for file in request.files
    ]
    sender, own = sender_of(site, caller), caller.as_owner
    inbound = Inbound(address, sender, request.text, key, now, solo=True, fork=fork, private=True, as_owner=own)
    attached, client = tuple(file.announced for file in files), _client_part(request)
    accepted = await accept(site, replace(inbound, earlier=request.earlier, attachments=attached, client=client))
    if isinstance(accepted.decision, Ignore):
        raise Refused(400, "invalid_value", f"The message was ignored: {accepted.decision.reason}.", param="messages")
    if fork is not None and (found := accepted.address_id) is not None:
        address = (await site.database.read(lambda conn: addresses.get(conn, found))).address
    pieces = turn.stream(site, accepted) if request.stream else _whole_answer(site, accepted)
    shape = shaped(accepted.inbox_id, created)
    if request.limits != NO_LIMITS:
        pieces = cut(pieces, request.limits)
    return await _respond(site, caller, request, shape, pieces, {"X-Session": address.chat})


async def _respond(
    site: Site, caller: Caller, request: ChatRequest, shape: Shape, pieces: Pieces, headers: dict[str, str]
) -> Response:
    if request.stream:
        return EventStream(_frames(pieces, request, shape), site.rights.hold(caller.session), headers)

    async def whole() -> JsonObject:
        try:
            async with aclosing(pieces):
                answer = await site.while_entitled(_final_answer(pieces), caller.session)
            await _check(request, answer)
        except Refused as refused:
            refused.headers.update(headers)
            raise
        return shape.whole(answer)

    return await json_response(whole(), headers)


async def _frames(pieces: Pieces, request: ChatRequest, shape: Shape) -> AsyncGenerator[Frame, None]:
    for frame in shape.opening():
        yield frame
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, TurnAnswer):
                    await _check(request, piece)
                for frame in shape.piece(piece) if isinstance(piece, str) else shape.closing(piece):
                    yield frame
    except Refused as refused:
        for frame in shape.failed(refused):
            yield frame


async def _check(request: ChatRequest, answer: TurnAnswer) -> None:
    """Raise `Refused` if the answer is not in the requested format; calls are not the answer yet."""
    if request.options.answer_format is not None and not answer.calls and answer.finish != "length":
        await run_in_threadpool(check_answer, request.options.answer_format, answer.text)


async def _whole_answer(site: Site, accepted: Accepted) -> Pieces:
    yield await turn.wait(site, accepted)


async def _finished_pieces(answer: TurnAnswer) -> Pieces:
    if answer.text:
        yield answer.text
    yield answer


async def _final_answer(pieces: Pieces) -> TurnAnswer:
    async for piece in pieces:
        if isinstance(piece, TurnAnswer):
            return piece
    raise RuntimeError("a turn ended without an answer")


def _client_part(request: ChatRequest) -> ClientInput | None:
    wanted = request.options if request.model in MODELS else replace(request.options, agent=request.model)
    options = None if wanted == NO_OPTIONS else wanted.to_json()
    return ClientInput(options, request.results) if options or request.results else None


async def _key(site: Site, caller: Caller, body: bytes, *, again: bool) -> str:
    """The key of a request that names none: a new one, or for a client's own retry that of the first try."""
    same = hashlib.sha256(body).hexdigest()
    before = await site.database.read(lambda conn: inbox.latest_key(conn, caller.account, same)) if again else None
    return before or f"{same}{uuid4().hex}"


async def _address(
    site: Site, caller: Caller, named: SessionHeaders, request: ChatRequest, key: str
) -> tuple[Address, str | None]:
    """The address of the named session, of the same request's first try, of the same history, or of a new session.

    The second value is a new address beside one with the same history, in case another request continues that first.
    """
    if named.session is not None:
        return Address(CHANNEL, caller.account, named.session), None
    # two equal requests at once must meet in one new session, so its name follows from their key
    fresh = str(uuid5(NAMESPACE_URL, f"supaclaw:{caller.account}:{key}"))
    before = digest.of(each.told for each in request.earlier)
    async with site.database.connection() as conn:
        if named.idempotency_key is not None or named.x_stainless_retry_count > 0:
            known = await inbox.address_of_key(conn, caller.account, key)
            if known is not None:
                return known, None
        if before != digest.EMPTY:
            same = await sessions.by_digest(conn, principal_of(site, caller), caller.account, before)
            if same is not None:
                return same, fresh
    return Address(CHANNEL, caller.account, fresh), None


async def _refuse_unknown_results(site: Site, address: Address, request: ChatRequest) -> None:
    """Raise `Refused` for a result without its call: in the session, or in the history that a new one brings."""
    unknown = {result.call_id for result in request.results}
    if not unknown:
        return
    async with site.database.connection() as conn:
        session = await sessions.current(conn, address)
        if session is None:
            unknown -= {call.id for said in request.earlier for call in said.calls}
        else:
            unknown = {id for id in unknown if await tool_calls.handed(conn, session, id) is None}
    if unknown:
        raise Refused(400, "unknown_call", f"No call in this session has the id {min(unknown)!r}.", param="messages")


TITLE_LENGTH = 40
_OPEN_WEBUI = re.compile(r"### Task:\s*(?P<task>[^\n]+).*<chat_history>", re.DOTALL)
_LIBRECHAT = re.compile(
    r"Provide a concise, 5-word-or-less title for the conversation"
    r"|Please generate a concise title \(max 40 characters\) for a conversation"
    r"|Analyze this conversation and provide:.{0,200}concise title",
    re.DOTALL,
)
_SAID = re.compile(r'^\W*(?:user|human)\W*:\s*"*(.+)', re.IGNORECASE | re.MULTILINE)


def rule_answer(request: ChatRequest) -> TurnAnswer | None:
    """The answer by rule to a request that Open WebUI or LibreChat makes by itself; None for all others."""
    if any(said.role != "system" for said in request.earlier):
        return None
    if match := _OPEN_WEBUI.match(request.text):
        task = match["task"].lower()
        if "tags" in task:
            return TurnAnswer(json.dumps({"tags": ["General"]}))
        if "follow-up" in task:
            return TurnAnswer(json.dumps({"follow_ups": []}))
        if "title" in task:
            return _titled(request, {"title": _title(request.text)}, plain='"title"' not in request.text)
    if _LIBRECHAT.match(request.text):
        return _titled(request, {"language": "English", "title": _title(request.text)}, plain=True)
    return None


def _titled(request: ChatRequest, fields: dict[str, Json], *, plain: bool) -> TurnAnswer:
    answer = json.dumps(fields, ensure_ascii=False)
    if request.options.tools:
        return TurnAnswer("", calls=(ToolCall("call_title", request.options.tools[0].name, answer),))
    return TurnAnswer(str(fields["title"]) if plain and not request.options.answer_format else answer)


def _title(text: str) -> str:
    """The beginning of the person's first message."""
    found = _SAID.search(text)
    return (clipped(found[1].strip('" '), TITLE_LENGTH) if found else "") or "Chat"


PATIENCE_SECONDS = 20.0
"""After so long without an answer the status 200 is sent; a later failure can only be reported in the body."""

log = structlog.get_logger(__name__)


async def json_response(work: Coroutine[Any, Any, JsonObject], headers: Mapping[str, str]) -> Response:
    """The result of `work`, or the error that it raises as a `Refused`."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.wait({running}, timeout=PATIENCE_SECONDS)
        if running.done():
            return JSONResponse(running.result(), headers=dict(headers))
    except BaseException:
        running.cancel()
        raise
    # a compressor would keep the whitespace to itself
    unbuffered = {"Content-Encoding": "identity", "X-Accel-Buffering": "no"}
    return ClosedStream(_pieces(running), "application/json", {**headers, **unbuffered})


async def _pieces(running: "asyncio.Future[JsonObject]") -> AsyncGenerator[bytes, None]:
    try:
        while not running.done():
            yield b" "
            await asyncio.wait({running}, timeout=PATIENCE_SECONDS)
        yield json.dumps(_outcome(running), ensure_ascii=False).encode()
    finally:
        await cancel(running)


def _outcome(running: "asyncio.Future[JsonObject]") -> Json:
    try:
        return running.result()
    except Refused as refused:
        return refused.body()
    except Exception:
        log.exception("web.broken")
        return Refused(500, "internal_error", "Internal error; see the gateway's log.").body()
