"""Conversations being viewed: each is rendered by one task, once for all its viewers, as patches between two states."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from time import monotonic
from typing import assert_never

import structlog
from markupsafe import Markup, escape

from gateway.beside import cancel
from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.tools import Wording
from gateway.domain.errors import TryAgainLater
from gateway.domain.text.texts import GrowingText
from gateway.flow import live
from gateway.store.transcript.conversations import with_doubts
from gateway.store.transcript.messages import MessageRow
from gateway.web.live.conversations import Conversations, Snapshot, Update
from gateway.web.live.entries import Entries, Question, id_of, names_in, question_cards, running_todo_list
from gateway.web.live.sse import Frame, Patch, Ring, difference, to_json
from gateway.web.markup.markdown import LONG, Markdown, boundary
from gateway.web.pages import Pages


def thought_words(milliseconds: int) -> str:
    """The line above a thought."""
    seconds = round(milliseconds / 1000)
    return f"Thought for {seconds} s" if seconds < 120 else f"Thought for {seconds // 60} min"


class ThinkingView:
    """The thinking of one answer that is being written."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._text, self._new = GrowingText(), ""
        self._since, self._until = 0.0, 0.0
        self._drawn = ""
        """The line as drawn; empty while nothing is."""
        self._void = False

    def add(self, text: str) -> None:
        """Add a piece."""
        if text:
            self._until = monotonic()
            self._since = self._since or self._until
            self._text.add(text)
            self._new += text

    def clear(self) -> None:
        """The thinking is void, or an entry by now."""
        self._text, self._new, self._since, self._void = GrowingText(), "", 0.0, True

    def forget(self) -> None:
        """The page has a new, empty element."""
        self._new, self._drawn = str(self._text), ""

    def draw(self, *, over: bool) -> list[Patch]:
        """The patches since the last call; `over`: the answer has begun."""
        if not self._since:
            drawn, self._drawn = self._drawn, ""
            return [Patch("fill", "live-thought", "")] if drawn else []
        line = self._line(over=over)
        if self._void or not self._drawn:
            patches = self.whole(over=over)
        else:
            patches = [Patch("append", "live-thought-text", str(escape(self._new)))] if self._new else []
            patches += [Patch("fill", "live-thought-line", line)] if line != self._drawn else []
        self._drawn, self._new, self._void = line, "", False
        return patches

    def whole(self, *, over: bool) -> list[Patch]:
        """Patches for a new page."""
        if not self._since:
            return []
        html = self._pages.part("live_thought", self._line(over=over), str(self._text))
        return [Patch("fill", "live-thought", str(html))]

    def _line(self, *, over: bool) -> str:
        words = thought_words(round((self._until - self._since) * 1000))
        return words if over else words.replace("Thought", "Thinking")


LIVE, TODO_LIST = "live", "todo"
_ALWAYS_REDRAWN_CHARS = 4096


class Thread:
    """The rendered state of one conversation. One task feeds it rows and events, in order."""

    def __init__(
        self,
        pages: Pages,
        markdown: Markdown,
        greeting: Markup,
        wordings: Callable[[], Mapping[str, Wording]] = dict,
        *,
        acts: bool = False,
    ) -> None:
        self._pages = pages
        self._markdown = markdown
        self._entries_of = Entries(pages, markdown, wordings, acts)
        self._greeting = greeting
        self._entries: dict[str, str] = {}
        self._made: dict[tuple[MessageRow, MessageRow | None, str, tuple[str, ...]], str] = {}
        self._running = False
        self._progress: dict[int | None, str] = {}
        self._text = ""
        self._thinking = ThinkingView(pages)
        self._awaited = ""
        self._shown_awaited = ""
        self._void = False
        self._done = 0
        self._drawn = 0

    def apply(self, event: live.LiveEvent) -> bool:
        """Apply an event; returns whether the rows must be read again."""
        match event:
            case live.TextWritten(text):
                self._text, self._awaited = self._text + text, ""
                return False
            case live.ThinkingWritten(text):
                self._thinking.add(text)
                self._awaited = ""
                return False
            case live.TextDropped():
                self._start_over()
                return False
            case live.ModelAwaited():
                self._awaited = self._entries_of.awaited(event)
                return False
            case live.ToolStarted():
                self._start_over()
            case live.ToolProgressed(ordinal, words):
                self._progress[ordinal] = words
            case live.TurnStarted() | live.TurnEnded():
                self._running, self._progress = isinstance(event, live.TurnStarted), {}
                self._start_over()
            case live.ToolEnded() | live.MessageStored() | live.SessionReplaced() | live.Overrun():
                pass
            case _:
                assert_never(event)
        return True

    def resume(self, written: str | None, thought: str = "") -> None:
        """Restart from the text written and thought so far; None if no answer is being written."""
        self._running = written is not None
        self._start_over(written or "")
        self._thinking.add(thought)

    async def draw(self, rows: Sequence[MessageRow] | None, questions: Sequence[Question] = ()) -> list[Patch]:
        """The patches since the last call; pass `rows`, with the open ones of their questions, if they may have
        changed."""
        patches: list[Patch] = []
        if rows is not None:
            await self._markdown.prepare([row.text for row in rows if row.kind in {"assistant", "summary"}])
            entries = self._drawn_entries(rows, question_cards(self._pages, questions, {}))
            patches = [*difference(self._entries, entries), Patch("running", self._running)]
            if LIVE not in self._entries:
                self._done = self._drawn = 0
                self._shown_awaited = ""
                self._thinking.forget()
            self._entries = entries
        if LIVE not in self._entries:
            return patches
        thinking = self._thinking.draw(over=bool(self._text))
        return [*patches, *self._draw_awaited(), *thinking, *await self._draw_text()]

    def whole(self) -> list[Patch]:
        """Patches for a new or outdated page: everything."""
        thread: list[Patch] = [
            Patch("fill", "thread", "".join([self._greeting, *self._entries.values()])),
            Patch("running", self._running),
        ]
        if LIVE in self._entries:
            thread += [
                Patch("fill", "live-done", self._markdown.html(self._text[: self._done])),
                Patch("fill", "live-tail", self._markdown.html(self._text[self._done :])),
            ]
            thread += self._thinking.whole(over=bool(self._text))
            if self._awaited:
                thread.append(Patch("fill", "live-awaited", self._awaited))
        return thread

    def _draw_awaited(self) -> list[Patch]:
        """Redraw the model that the answer waits for, if it has changed."""
        if self._awaited == self._shown_awaited:
            return []
        self._shown_awaited = self._awaited
        return [Patch("fill", "live-awaited", self._awaited)]

    async def _draw_text(self) -> list[Patch]:
        """Append each finished block once; redraw only the tail."""
        patches: list[Patch] = []
        if self._void and self._done + self._drawn:
            self._done = self._drawn = 0
            patches += [Patch("fill", "live-done", ""), Patch("fill", "live-tail", "")]
        self._void = False
        if not self._should_redraw(len(self._text) - self._done):
            return patches
        reading = self._text, self._done
        cut = await asyncio.to_thread(boundary, *reading) if len(self._text) - self._done > LONG else boundary(*reading)
        tail = self._text[cut:]
        await self._markdown.prepare([self._text[self._done : cut], tail])
        if cut > self._done:
            patches.append(Patch("append", "live-done", self._markdown.html(self._text[self._done : cut])))
            self._done = cut
        self._drawn = len(tail)
        return [*patches, Patch("fill", "live-tail", self._markdown.html(tail))]

    def _start_over(self, text: str = "") -> None:
        """Clear the answer being written: it was dropped, or is an entry by now."""
        self._text, self._void, self._awaited = text, True, ""
        self._thinking.clear()

    def _should_redraw(self, length: int) -> bool:
        """Whether to redraw; an ever-growing block is redrawn less and less often, to stay cheap."""
        growth = 1.05 if length < LONG else 1.25
        return length != self._drawn and (length < _ALWAYS_REDRAWN_CHARS or length > self._drawn * growth)

    def _drawn_entries(self, rows: Sequence[MessageRow], cards: Mapping[str, str]) -> dict[str, str]:
        belonging: dict[tuple[object, object], MessageRow] = {
            (row.task_id, row.ordinal): row for row in rows if row.kind == "tool_result"
        }
        belonging |= {(row.answered_by, None): row for row in rows if row.answered_by}
        shown = [(row, belonging.get(_key(row))) for row in with_doubts(rows) if row.kind != "tool_result"]
        made = {(row, other, self._state(row, other), _asked(row, cards)): "" for row, other in shown}
        for key in made:
            made[key] = self._made.get(key) or str(self._entries_of.draw(*key))
        self._made = made
        entries: dict[str, str] = {}
        for (row, *_), html in made.items():
            if row.thought_ms is not None:
                thought = f"t{row.id}"
                entries[thought] = str(self._pages.part("thought", thought, row, thought_words(row.thought_ms)))
            entries[id_of(row)] = html
        if not self._running:
            return entries
        steps = running_todo_list(shown)
        todo = {TODO_LIST: str(self._pages.part("todo", TODO_LIST, steps))} if steps else {}
        return entries | todo | {LIVE: str(self._pages.part("live"))}

    def _state(self, row: MessageRow, result: MessageRow | None) -> str:
        """How far a call is while it runs; "" for what doesn't run."""
        return self._progress.get(row.ordinal, "running") if self._running and result is None else ""


def _asked(row: MessageRow, cards: Mapping[str, str]) -> tuple[str, ...]:
    """The cards of the open questions in a notice."""
    return tuple(cards[name] for name in names_in(row.text) if name in cards) if row.kind == "notice" else ()


def _key(row: MessageRow) -> tuple[object, object]:
    """The key of the row that belongs to this one: the result of a call, or the last message that it answers."""
    return (row.id, None) if row.kind in {"notice", "assistant"} else (row.task_id, row.ordinal)


FRAME_SECONDS = 0.05
ANSWERED_SECONDS = 2.0
"""Between two looks at open questions: no event tells that one was answered in another chat or a terminal."""
LINGER_SECONDS = 60.0

log = structlog.get_logger(__name__)


class _Topic:
    """One conversation with viewers."""

    def __init__(self, address: Address, thread: Thread, conversations: Conversations) -> None:
        self._address = address
        self._thread = thread
        self._conversations = conversations
        self._snapshot: Snapshot | None = None
        self.ring = Ring(lambda: to_json(thread.whole()))
        self.drawn = asyncio.Event()

    async def run(self) -> None:
        """Render updates until there have been no viewers for a while."""
        async with aclosing(self._conversations.follow(self._address, pace=FRAME_SECONDS)) as updates:
            next_update = asyncio.ensure_future(anext(updates))
            clock = asyncio.get_running_loop().time
            looked_at = clock()
            try:
                while self.ring.viewers or clock() - looked_at < LINGER_SECONDS:
                    looked_at = clock() if self.ring.viewers else looked_at
                    asks = bool(self._snapshot and self._snapshot.questions)
                    done, _ = await asyncio.wait({next_update}, timeout=ANSWERED_SECONDS if asks else LINGER_SECONDS)
                    if done:
                        self._publish(await self._draw(next_update.result()))
                        next_update = asyncio.ensure_future(anext(updates))
                    elif asks:
                        self._publish(await self._read_again())
            finally:
                await cancel(next_update)

    def end(self) -> None:
        """Disconnect the viewers, and those that wait for the first drawing."""
        self.ring.end()
        self.drawn.set()

    def _publish(self, patches: list[Patch]) -> None:
        if patches and self.drawn.is_set():
            self.ring.publish(to_json(patches))
        self.drawn.set()

    async def _draw(self, update: Update) -> list[Patch]:
        if isinstance(update, Snapshot):
            self._snapshot = update
            self._thread.resume(update.written, update.thought)
            return await self._thread.draw(update.rows, update.questions)
        again = [self._thread.apply(event) for event in update]
        return await (self._read_again() if any(again) else self._thread.draw(None))

    async def _read_again(self) -> list[Patch]:
        if self._snapshot is None or self._snapshot.session is None:
            return await self._thread.draw(None)
        self._snapshot = await self._conversations.snapshot(self._snapshot.session)
        return await self._thread.draw(self._snapshot.rows, self._snapshot.questions)


class Topics:
    """The open topics, by address. A failing topic does not affect the others."""

    def __init__(self, conversations: Conversations, thread: Callable[[], Thread]) -> None:
        self._conversations = conversations
        self._thread = thread
        self._open: dict[Address, tuple[_Topic, asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def serve(self, stopping: asyncio.Event) -> None:
        """Run the topics until `stopping` is set; `follow` yields nothing before or after."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            await stopping.wait()
            self._group = None
            for topic, task in self._open.values():
                topic.end()
                task.cancel()

    async def refresh(self) -> None:
        """Read the rows of all open topics again: what they show of them has changed."""
        for address in tuple(self._open):
            await self._conversations.refresh(address)

    async def follow(self, address: Address, last_id: str | None) -> AsyncGenerator[Frame, None]:
        """Yield frames for one viewer."""
        if self._group is None:
            return
        topic, _ = self._open.get(address) or self._begin(address, self._group)
        await topic.drawn.wait()
        async with aclosing(topic.ring.follow(last_id)) as frames:
            async for frame in frames:
                yield frame

    def _begin(self, address: Address, group: asyncio.TaskGroup) -> tuple[_Topic, asyncio.Task[None]]:
        topic = _Topic(address, self._thread(), self._conversations)
        task = group.create_task(self._run(address, topic), name=f"topic {address.channel} {address.chat}")
        self._open[address] = (topic, task)
        return self._open[address]

    async def _run(self, address: Address, topic: _Topic) -> None:
        try:
            await topic.run()
        except TryAgainLater as exc:
            log.warning("web.topic_waits", channel=address.channel, error=str(exc))
        except Exception:  # its viewers reconnect by themselves
            log.exception("web.topic_broken", channel=address.channel)
        finally:
            topic.end()
            del self._open[address]
