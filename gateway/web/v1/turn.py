"""One request's turn: its text as it is written, then the answer as it is stored; both within the client's limits."""

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from pydantic import JsonValue

from gateway.beside import cancel
from gateway.domain.channels.routing import RunCommand
from gateway.domain.conversation.digest import spoken
from gateway.domain.conversation.model import ToolCall
from gateway.domain.errors import required
from gateway.domain.ids import MessageId, SessionId
from gateway.domain.text.tokens import estimate
from gateway.flow import live
from gateway.flow.inbound.answers import NOTHING, Answer
from gateway.flow.inbound.persistence import Accepted
from gateway.store.connection.pool import Connection
from gateway.store.transcript import messages, tool_calls
from gateway.store.work.steps import ModelUse
from gateway.web.http.errors import Refused
from gateway.web.site import Site
from gateway.web.v1.request_fields import invalid

MAX_STOPS = 16
_MOST_TOKENS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
"""Names of the same limit in the APIs, newest first."""
_FENCED = re.compile(r"\s*(`{3,}|~{3,})(?:[A-Za-z]*[ \t]*(?=[{[])|[^\n`]*\n)(?P<inside>.*?)\n?[ \t]*\1\s*", re.DOTALL)
_FENCE_BEGINS = re.compile(r"\s*(?:[`~]|\Z)")

_DIVERGED = "The answer was started again by another model; ask for it again with the same Idempotency-Key."


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """The whole answer to one message, and the calls of the client's tools at its end."""

    text: str
    spent: ModelUse = NOTHING
    calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"
    """"length" if the client's limit of tokens ended it."""


Pieces: TypeAlias = AsyncGenerator[str | TurnAnswer, None]
"""The text of an answer while it is written, then the whole."""


async def wait(site: Site, accepted: Accepted) -> TurnAnswer:
    """Wait for the answer, however long it takes; raises `Refused` if the turn failed or was stopped."""
    answer = await site.chat.answers.wait(accepted)
    if isinstance(accepted.decision, RunCommand):
        return TurnAnswer(answer.text, answer.spent)
    if answer.notice:
        # a repeat would say the same message twice
        raise Refused(424, "turn_failed", answer.text, type="server_error", headers={"x-should-retry": "false"})
    async with site.database.connection() as conn:
        place = await _place(conn, accepted.message_id, answer)
        if place is None:
            return TurnAnswer(answer.text, answer.spent)
        texts, calls = await messages.said_since(conn, *place), await tool_calls.handed_since(conn, *place)
    return TurnAnswer(spoken(texts), answer.spent, tuple(calls))


async def stream(site: Site, accepted: Accepted) -> Pieces:
    """Pieces of the answer while it is written, then the whole; raises `Refused` like `wait`.

    The pieces make up the whole exactly; raises `Refused` if a retry by another model makes that impossible.
    """
    session = required(accepted.session_id, Refused(500, "not_stored", "The message was not stored."))
    waiting = asyncio.ensure_future(wait(site, accepted))
    with site.chat.live.subscribe(session) as events:
        listener = await _Listener.at(site, accepted.message_id, session, events)
        coming = asyncio.ensure_future(events.get())
        try:
            if written := listener.text.write(""):
                yield written
            while not waiting.done():
                await asyncio.wait({waiting, coming}, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    if piece := listener.apply(coming.result()):
                        yield piece
                    coming = asyncio.ensure_future(events.get())
            whole = waiting.result()
            diverged = Refused(424, "stream_diverged", _DIVERGED, type="server_error")
            rest = required(listener.text.finish(whole.text), diverged)
            if rest:
                yield rest
            yield whole
        finally:
            await cancel(waiting, coming)


class StreamedText:
    """The part of an unfinished text that may be sent already: all pieces together must equal the stored text."""

    def __init__(self, settled: tuple[str, ...] = (), written: str = "") -> None:
        self._settled = list(settled)
        self._part = written
        self._sent = ""

    def write(self, text: str) -> str:
        """Add text; whitespace waits for what follows it, since the end of a text is trimmed."""
        self._part += text
        return self.finish(spoken([*self._settled, self._part])) or ""

    def settle(self) -> None:
        """Keep the text so far: a tool call follows, then another text."""
        self._settled.append(self._part)
        self._part = ""

    def drop(self) -> None:
        """Discard the text since the last tool call; the same words may come again."""
        self._part = ""

    def finish(self, text: str) -> str | None:
        """The rest of the whole text; None if other text was sent already."""
        if not text.startswith(self._sent):
            return None
        fresh = text[len(self._sent) :]
        self._sent = text
        return fresh


class _Listener:
    """Follows the one turn that answers a message, and ignores the others of its session."""

    def __init__(self, message: MessageId | None, *, mine: bool, text: StreamedText) -> None:
        self._message = message
        self._mine = mine
        self.text = text

    @classmethod
    async def at(
        cls, site: Site, message: MessageId | None, session: SessionId, events: live.Subscription
    ) -> "_Listener":
        """Start in the middle of a turn that may be running: its text so far includes all earlier events."""
        async with site.database.connection() as conn:
            row = await messages.get(conn, message) if message else None
            taken = row is not None and row.kind == "user" and row.seq is not None and row.answered_by is None
            place = await _place(conn, message, None) if taken else None
            settled = await messages.said_since(conn, *place) if place else []
        if not taken:
            return cls(message, mine=False, text=StreamedText())
        events.ready()
        return cls(message, mine=True, text=StreamedText(tuple(settled), site.chat.live.written(session) or ""))

    def apply(self, event: live.LiveEvent) -> str:
        match event:
            case live.TurnStarted(taken):
                self._mine = self._message in taken
                self.text.drop()
            case live.TextWritten(text) if self._mine:
                return self.text.write(text)
            case live.TextDropped() if self._mine:
                self.text.drop()
            case live.ToolStarted() if self._mine:
                self.text.settle()
            case live.TurnEnded() | live.Overrun():
                self._mine = False
            case live.TextWritten() | live.TextDropped() | live.ToolStarted():
                pass  # of another turn
            case live.ThinkingWritten() | live.ModelAwaited() | live.ToolProgressed() | live.ToolEnded():
                pass
            case live.MessageStored() | live.SessionReplaced():
                pass
            case _:
                assert_never(event)
        return ""


async def _place(
    conn: Connection, message: MessageId | None, answer: Answer | None
) -> tuple[SessionId, int, int] | None:
    """The session of a message, and the places in it between the message and the answer."""
    message_row = await messages.get(conn, message) if message else None
    last = await messages.get(conn, answer.message_id) if answer and answer.message_id else None
    if message_row is None or message_row.seq is None:
        return None
    return message_row.session_id, message_row.seq, 2**31 - 1 if last is None or last.seq is None else last.seq


@dataclass(frozen=True, slots=True)
class TextLimits:
    """`stop` ends the text before the first of them; `max_tokens` are estimated; `fenced` JSON loses its fence."""

    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    fenced: bool = False


NO_LIMITS = TextLimits()


def limits_of(fields: Mapping[str, JsonValue], *, fenced: bool) -> TextLimits:
    """The limits of a request to any of the APIs; raises `Refused`."""
    stop = fields.get("stop") or []
    stops = [stop] if isinstance(stop, str) else stop
    texts = [each for each in stops if isinstance(each, str) and each] if isinstance(stops, list) else []
    if texts != stops or len(texts) > MAX_STOPS:
        raise invalid("stop", f"'stop' must be a text, or a list of {MAX_STOPS} at most.")
    given = [most for name in _MOST_TOKENS if (most := _whole_number(fields, name)) is not None]
    return TextLimits(tuple(texts), next(iter(given), None), fenced)


def _whole_number(fields: Mapping[str, JsonValue], name: str) -> int | None:
    number = fields.get(name)
    if number is None or (isinstance(number, int) and not isinstance(number, bool) and number >= 1):
        return number
    raise invalid(name, f"'{name}' must be a whole number of at least 1.")


async def cut(pieces: Pieces, limits: TextLimits) -> Pieces:
    """The pieces within the limits, which make up the whole again. The turn itself goes on to its end."""
    arrived, text = 0, _Cut(limits)
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, str):
                arrived += len(piece)
                if part := text.add(piece):
                    yield part
                continue
            if part := text.add(piece.text[arrived:], last=True):
                yield part
            calls = () if text.finish else piece.calls
            yield replace(piece, text=text.sent, calls=calls, finish=text.finish or "stop")


@dataclass(slots=True)
class _Cut:
    limits: TextLimits
    sent: str = ""
    finish: str = ""
    """Why the text ended before its end; "" if it did not."""
    _held: str = ""
    _tokens: int = 0
    """Those of the text that is sent."""

    def add(self, text: str, *, last: bool = False) -> str:
        """The part of the text that may be sent; the rest is held until it is known what follows."""
        if self.finish:
            return ""
        text, self._held = self._held + text, ""
        if self.limits.fenced and not self.sent:
            if not last and _FENCE_BEGINS.match(text):
                self._held = text
                return ""
            text = found["inside"] if last and (found := _FENCED.fullmatch(text)) else text
        part = self._within(self._before_stop(text, last=last))
        self.sent += part
        return part

    def _before_stop(self, text: str, *, last: bool) -> str:
        places = [at for at in map(text.find, self.limits.stop) if at >= 0]
        if places:
            self.finish = "stop"
            return text[: min(places)]
        longest = 0 if last else max(map(len, self.limits.stop), default=1) - 1
        for held in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-held:]) for stop in self.limits.stop):
                self._held = text[-held:]
                return text[:-held]
        return text

    def _within(self, text: str) -> str:
        if self.limits.max_tokens is None or not text:
            return text
        room, needed = self.limits.max_tokens - self._tokens, estimate(text)
        self._tokens += needed
        if needed <= room:
            return text
        self.finish = "length"
        return text[: bisect_right(range(len(text)), room, key=lambda end: estimate(text[:end])) - 1]
