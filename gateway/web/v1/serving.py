"""Serves one request of any of the APIs: finds or starts its session, runs its turn once, sends its answer.

Titles and tags that chat programs ask for are answered by rule; a slow JSON response is kept alive."""

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
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Send

from gateway.domain.channels.routing import Ignore
from gateway.domain.conversation import digest
from gateway.domain.conversation.inbound import NO_OPTIONS, Address, ClientInput, Inbound
from gateway.domain.conversation.model import ToolCall
from gateway.domain.ids import InboxId
from gateway.domain.json import Json, JsonObject
from gateway.domain.people.credentials import Scope
from gateway.domain.text.texts import clipped
from gateway.flow.inbound.persistence import Accepted
from gateway.store.delivery import addresses, inbox
from gateway.store.transcript import sessions, tool_calls
from gateway.web.auth.access import Caller, needs, principal_of, sender_of
from gateway.web.components.files import keep
from gateway.web.http.bodies import UploadedFile
from gateway.web.http.errors import Refused
from gateway.web.live.sse import EventStream, Frame
from gateway.web.site import Site, accept
from gateway.web.v1 import turn
from gateway.web.v1.request import ChatRequest
from gateway.web.v1.request_fields import check_answer, refuse_clash
from gateway.web.v1.turn import TurnAnswer
from gateway.web.v1.wire import Completion, ResponseObject

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
class SessionHeaders:
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


async def serve(
    site: Site, caller: Caller, named: SessionHeaders, body: bytes, asked: ChatRequest, shaped: Shaped
) -> Response:
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
        private=True,
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
    asked: ChatRequest,
    shape: Shape,
    pieces: AsyncGenerator[str | TurnAnswer, None],
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
    pieces: AsyncGenerator[str | TurnAnswer, None], asked: ChatRequest, shape: Shape
) -> AsyncGenerator[Frame, None]:
    for frame in shape.opening():
        yield frame
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, TurnAnswer):
                    await _check(asked, piece)
                for frame in shape.piece(piece) if isinstance(piece, str) else shape.closing(piece):
                    yield frame
    except Refused as refused:
        for frame in shape.failed(refused):
            yield frame


async def _check(asked: ChatRequest, spoken: TurnAnswer) -> None:
    """Raises `Refused` for an answer in another form than asked for; calls are not the answer yet."""
    if asked.options.answer_format is not None and not spoken.calls:
        await run_in_threadpool(check_answer, asked.options.answer_format, spoken.text)


async def _waited(site: Site, accepted: Accepted) -> AsyncGenerator[str | TurnAnswer, None]:
    yield await turn.wait(site.backend, accepted)


async def _at_once(spoken: TurnAnswer) -> AsyncGenerator[str | TurnAnswer, None]:
    if spoken.text:
        yield spoken.text
    yield spoken


async def _last(pieces: AsyncGenerator[str | TurnAnswer, None]) -> TurnAnswer:
    async for piece in pieces:
        if isinstance(piece, TurnAnswer):
            return piece
    raise RuntimeError("a turn ended without an answer")


def _brought(asked: ChatRequest) -> ClientInput | None:
    wanted = asked.options if asked.model in OWN else replace(asked.options, agent=asked.model)
    options = None if wanted == NO_OPTIONS else wanted.to_json()
    return ClientInput(options, asked.results) if options or asked.results else None


async def _key(site: Site, caller: Caller, body: bytes, *, again: bool) -> str:
    """The key of a request that names none. A client's own retry has that of the same request before."""
    same = hashlib.sha256(body).hexdigest()
    before = None
    if again:
        async with site.backend.database.connection() as conn:
            before = await inbox.latest_key(conn, caller.account, same)
    return before or f"{same}{uuid4().hex}"


async def _address(
    site: Site, caller: Caller, named: SessionHeaders, asked: ChatRequest, key: str
) -> tuple[Address, str | None]:
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
            before = await inbox.address_of_key(conn, caller.account, key)
            if before is not None:
                return before, None
        if told != digest.EMPTY:
            same = await sessions.by_digest(conn, principal_of(site.backend, caller), caller.account, told)
            if same is not None:
                return same, fresh
    return Address(CHANNEL, caller.account, fresh), None


async def _refuse_unknown_results(site: Site, address: Address, asked: ChatRequest) -> None:
    """A session that goes on knows its calls; one that begins is told of them before their results."""
    unknown = {result.call_id for result in asked.results}
    if not unknown:
        return
    async with site.backend.database.connection() as conn:
        session = await sessions.current(conn, address)
        if session is None:
            unknown -= {call.id for said in asked.earlier for call in said.calls}
        else:
            unknown = {id for id in unknown if await tool_calls.handed(conn, session, id) is None}
    if unknown:
        message = f"No call in this session has the id {min(unknown)!r}."
        raise Refused(400, "unknown_call", message, param="messages")


TITLE_LENGTH = 40
_OPEN_WEBUI = re.compile(r"### Task:\s*(?P<task>[^\n]+).*<chat_history>", re.DOTALL)
_LIBRECHAT = re.compile(
    r"Provide a concise, 5-word-or-less title for the conversation"
    r"|Please generate a concise title \(max 40 characters\) for a conversation"
    r"|Analyze this conversation and provide:.{0,200}concise title",
    re.DOTALL,
)
_SAID = re.compile(r'^\W*(?:user|human)\W*:\s*"*(.+)', re.IGNORECASE | re.MULTILINE)


def chore(asked: ChatRequest) -> TurnAnswer | None:
    """The answer to a request of Open WebUI or LibreChat that nobody said; None for all others."""
    if any(said.role != "system" for said in asked.earlier):
        return None
    if match := _OPEN_WEBUI.match(asked.text):
        task = match["task"].lower()
        if "tags" in task:
            return TurnAnswer(json.dumps({"tags": ["General"]}))
        if "follow-up" in task:
            return TurnAnswer(json.dumps({"follow_ups": []}))
        if "title" in task:
            return _titled(asked, {"title": _title(asked.text)}, plain='"title"' not in asked.text)
    if _LIBRECHAT.match(asked.text):
        return _titled(asked, {"language": "English", "title": _title(asked.text)}, plain=True)
    return None


def _titled(asked: ChatRequest, fields: dict[str, Json], *, plain: bool) -> TurnAnswer:
    told = json.dumps(fields, ensure_ascii=False)
    if asked.options.tools:
        return TurnAnswer("", calls=(ToolCall("call_title", asked.options.tools[0].name, told),))
    return TurnAnswer(str(fields["title"]) if plain and not asked.options.answer_format else told)


def _title(text: str) -> str:
    """The beginning of what the person said first."""
    found = _SAID.search(text)
    return (clipped(found[1].strip('" '), TITLE_LENGTH) if found else "") or "Chat"


PATIENCE_SECONDS = 20.0
"""Without an answer for so long the status is sent, a 200: what fails later can only stand in the body."""

log = structlog.get_logger(__name__)


async def json_response(work: Coroutine[Any, Any, JsonObject], headers: Mapping[str, str]) -> Response:
    """What `work` returns, or raises as a `Refused`."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.wait({running}, timeout=PATIENCE_SECONDS)
        if running.done():
            return JSONResponse(running.result(), headers=dict(headers))
    except BaseException:
        running.cancel()
        raise
    return _SlowJsonResponse(running, headers)


class _SlowJsonResponse(StreamingResponse):
    def __init__(self, running: "asyncio.Future[JsonObject]", headers: Mapping[str, str]) -> None:
        self._pieces = _pieces(running)
        # a compressor would keep the whitespace to itself
        unbuffered = {"Content-Encoding": "identity", "X-Accel-Buffering": "no"}
        super().__init__(self._pieces, media_type="application/json", headers={**headers, **unbuffered})

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._pieces):
            await super().stream_response(send)


async def _pieces(running: "asyncio.Future[JsonObject]") -> AsyncGenerator[bytes, None]:
    try:
        while not running.done():
            yield b" "
            await asyncio.wait({running}, timeout=PATIENCE_SECONDS)
        yield json.dumps(_outcome(running), ensure_ascii=False).encode()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _outcome(running: "asyncio.Future[JsonObject]") -> Json:
    try:
        return running.result()
    except Refused as refused:
        return refused.body()
    except Exception:
        log.exception("web.broken")
        return Refused(500, "internal_error", "Internal error; see the gateway's log.", type="server_error").body()
