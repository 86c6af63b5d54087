"""One request's turn: its text as it is written, then the answer as it is stored."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from gateway.domain.channels.routing import RunCommand
from gateway.domain.conversation.digest import spoken
from gateway.domain.conversation.model import ToolCall
from gateway.domain.ids import MessageId, SessionId
from gateway.flow import live
from gateway.flow.inbound.answers import NOTHING, Answer
from gateway.flow.inbound.persistence import Accepted
from gateway.store.connection.pool import Connection
from gateway.store.transcript import messages, tool_calls
from gateway.store.work.steps import ModelUse
from gateway.web.http.errors import Refused
from gateway.web.live.sse import cancel
from gateway.web.site import Site

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
    if accepted.session_id is None:
        raise Refused(500, "not_stored", "The message was not stored.")
    waiting = asyncio.ensure_future(wait(site, accepted))
    with site.chat.live.subscribe(accepted.session_id) as events:
        listener = await _Listener.at(site, accepted.message_id, accepted.session_id, events)
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
            rest = listener.text.finish(whole.text)
            if rest is None:
                raise Refused(424, "stream_diverged", _DIVERGED, type="server_error")
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
