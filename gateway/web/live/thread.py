"""Renders a conversation: its entries by id, the answer being written, and the patches between two states."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from markupsafe import Markup

from gateway.domain.conversation.tools import Wording
from gateway.flow import live
from gateway.store.transcript.messages import MessageRow
from gateway.web.entries import Entries, id_of, running_plan
from gateway.web.live.patches import Patch, difference
from gateway.web.pages import Pages
from gateway.web.render import LONG, Markdown, boundary

LIVE, PLAN = "live", "plan"
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
        self._made: dict[tuple[MessageRow, MessageRow | None, bool], str] = {}
        self._running = False
        self._text = ""
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
            case live.TextDropped():
                self._start_over()
                return False
            case live.ModelAwaited():
                self._awaited = self._entries_of.awaited(event)
                return False
            case live.ToolStarted():
                self._start_over()
            case live.TurnStarted() | live.TurnEnded():
                self._running = isinstance(event, live.TurnStarted)
                self._start_over()
            case live.ToolEnded() | live.MessageStored() | live.SessionReplaced() | live.Overrun():
                pass
            case _:
                assert_never(event)
        return True

    def resume(self, written: str | None) -> None:
        """Restart from the text written so far; None if no answer is being written."""
        self._running = written is not None
        self._start_over(written or "")

    async def draw(self, rows: Sequence[MessageRow] | None) -> list[Patch]:
        """The patches since the last call; pass `rows` if they may have changed."""
        patches: list[Patch] = []
        if rows is not None:
            await self._markdown.prepare([row.text for row in rows if row.kind in {"assistant", "summary"}])
            entries = self._drawn_entries(rows)
            patches = [*difference(self._entries, entries), Patch("running", self._running)]
            if LIVE not in self._entries:
                self._done = self._drawn = 0
                self._shown_awaited = ""
            self._entries = entries
        return [*patches, *self._draw_awaited(), *await self._draw_text()] if LIVE in self._entries else patches

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
            if self._awaited:
                thread.append(Patch("fill", "live-awaited", self._awaited))
        return thread

    def _draw_awaited(self) -> list[Patch]:
        """What the answer waits for, if that has changed."""
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

    def _should_redraw(self, length: int) -> bool:
        """Whether to redraw; an ever-growing block is redrawn less and less often, to stay cheap."""
        return length != self._drawn and (
            length < _ALWAYS_REDRAWN_CHARS or length > self._drawn * (1.05 if length < LONG else 1.25)
        )

    def _drawn_entries(self, rows: Sequence[MessageRow]) -> dict[str, str]:
        belonging: dict[tuple[object, object], MessageRow] = {
            (row.task_id, row.ordinal): row for row in rows if row.kind == "tool_result"
        }
        belonging |= {(row.answered_by, None): row for row in rows if row.answered_by}
        shown = [(row, belonging.get(_key(row))) for row in rows if row.kind != "tool_result"]
        made = {(row, other, self._running and other is None): "" for row, other in shown}
        for key in made:
            made[key] = self._made.get(key) or str(self._entries_of.draw(*key))
        self._made = made
        entries = {id_of(row): html for (row, _, _), html in made.items()}
        if not self._running:
            return entries
        steps = running_plan(shown)
        plan = {PLAN: str(self._pages.message("plan", PLAN, steps))} if steps else {}
        return entries | plan | {LIVE: str(self._pages.message("live"))}


def _key(row: MessageRow) -> tuple[object, object]:
    """Of the row that belongs to this one: the result of a call, the last message that is answered."""
    return (row.id, None) if row.kind in {"notice", "assistant"} else (row.task_id, row.ordinal)
