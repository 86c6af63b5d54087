"""One request's turn: its text as it is written, then the answer as it is stored."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import assert_never

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
from gateway.web.backend import Backend
from gateway.web.http.errors import Refused

_DIVERGED = "The answer was started again by another model; ask for it again with the same Idempotency-Key."


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """All the agent said to one message, and the calls of the client's tools that it ends with."""

    text: str
    spent: ModelUse = NOTHING
    calls: tuple[ToolCall, ...] = ()


async def wait(backend: Backend, accepted: Accepted) -> TurnAnswer:
    """The answer, however long it takes; raises `Refused` when the turn failed or was stopped."""
    answer = await backend.answers.wait(accepted)
    if isinstance(accepted.decision, RunCommand):
        return TurnAnswer(answer.text, answer.spent)
    if answer.notice:
        # a repeat would say the same message twice
        raise Refused(424, "turn_failed", answer.text, type="server_error", headers={"x-should-retry": "false"})
    async with backend.database.connection() as conn:
        place = await _place(conn, accepted.message_id, answer)
        if place is None:
            return TurnAnswer(answer.text, answer.spent)
        texts, calls = await messages.said_since(conn, *place), await tool_calls.handed_since(conn, *place)
    return TurnAnswer(spoken(texts), answer.spent, tuple(calls))


async def stream(backend: Backend, accepted: Accepted) -> AsyncGenerator[str | TurnAnswer, None]:
    """Pieces of the answer while it is written, then the whole; raises `Refused` like `wait`.

    The pieces make up the whole exactly; if a retry made that impossible it raises `Refused` instead of pretending.
    """
    if accepted.session_id is None:
        raise Refused(500, "not_stored", "The message was not stored.", type="server_error")
    waiting = asyncio.ensure_future(wait(backend, accepted))
    with backend.live.subscribe(accepted.session_id) as events:
        listener = await _Listener.at(backend, accepted, events)
        coming = asyncio.ensure_future(events.get())
        try:
            if written := listener.stitch.write(""):
                yield written
            while not waiting.done():
                await asyncio.wait({waiting, coming}, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    if piece := listener.heard(coming.result()):
                        yield piece
                    coming = asyncio.ensure_future(events.get())
            whole = waiting.result()
            rest = listener.stitch.finish(whole.text)
            if rest is None:
                raise Refused(424, "stream_diverged", _DIVERGED, type="server_error")
            if rest:
                yield rest
            yield whole
        finally:
            waiting.cancel()
            coming.cancel()
            await asyncio.gather(waiting, coming, return_exceptions=True)


class Stitch:
    """What may be sent of a text that is still being written: the pieces have to make up what is stored in the end."""

    def __init__(self, settled: tuple[str, ...] = (), written: str = "") -> None:
        self._settled = list(settled)
        self._part = written
        self._sent = ""

    def write(self, text: str) -> str:
        """More text; whitespace waits for what follows it, since the end of a text is trimmed."""
        self._part += text
        return self.finish(spoken([*self._settled, self._part])) or ""

    def settle(self) -> None:
        """What is written stands: a tool call follows, then another text."""
        self._settled.append(self._part)
        self._part = ""

    def drop(self) -> None:
        """What is written since the last tool call is void; the same words may come again."""
        self._part = ""

    def finish(self, text: str) -> str | None:
        """What of the whole is not sent yet; None when something else was sent already."""
        if not text.startswith(self._sent):
            return None
        fresh = text[len(self._sent) :]
        self._sent = text
        return fresh


class _Listener:
    """Hears only the turn that answers one message."""

    def __init__(self, message: MessageId | None, *, mine: bool, stitch: Stitch) -> None:
        self._message = message
        self._mine = mine
        self.stitch = stitch

    @classmethod
    async def at(cls, backend: Backend, accepted: Accepted, events: live.Subscription) -> "_Listener":
        """Take up a turn that may be running already: its text so far is known, what was published so far is in it."""
        message = accepted.message_id
        async with backend.database.connection() as conn:
            row = await messages.get(conn, message) if message else None
            taken = row is not None and row.kind == "user" and row.seq is not None and row.answered_by is None
            place = await _place(conn, message, None) if taken else None
            settled = await messages.said_since(conn, *place) if place else []
        if not taken or accepted.session_id is None:
            return cls(message, mine=False, stitch=Stitch())
        events.ready()
        return cls(message, mine=True, stitch=Stitch(tuple(settled), backend.live.written(accepted.session_id) or ""))

    def heard(self, event: live.LiveEvent) -> str:
        match event:
            case live.TurnStarted(taken):
                self._mine = self._message in taken
                self.stitch.drop()
            case live.TextWritten(text) if self._mine:
                return self.stitch.write(text)
            case live.TextDropped() if self._mine:
                self.stitch.drop()
            case live.ToolStarted() if self._mine:
                self.stitch.settle()
            case live.TurnEnded() | live.Overrun():
                self._mine = False
            case live.TextWritten() | live.TextDropped() | live.ToolStarted():
                pass  # of somebody else's turn
            case live.ModelAwaited() | live.ToolEnded() | live.MessageStored() | live.SessionReplaced():
                pass
            case _:
                assert_never(event)
        return ""


async def _place(
    conn: Connection, message: MessageId | None, answer: Answer | None
) -> tuple[SessionId, int, int] | None:
    """Where in which transcript the agent speaks to a message: behind it, up to the answer."""
    asked = await messages.get(conn, message) if message else None
    last = await messages.get(conn, answer.message_id) if answer and answer.message_id else None
    if asked is None or asked.seq is None:
        return None
    return asked.session_id, asked.seq, 2**31 - 1 if last is None or last.seq is None else last.seq
