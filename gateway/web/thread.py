"""Renders a conversation: its entries by id, the answer being written, and the patches between two states."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from markupsafe import Markup

from gateway.flow import live
from gateway.store.transcript.messages import MessageRow
from gateway.web.attachments import chip
from gateway.web.pages import Pages
from gateway.web.patches import Patch, difference
from gateway.web.render import LONG, Markdown, boundary

LIVE = "live"
_ALWAYS_REDRAWN_CHARS = 4096


@dataclass(frozen=True, slots=True)
class ToolCard:
    """A tool call as shown; `remark` describes its state."""

    id: str
    name: str
    arguments: str
    result: str | None
    state: str
    remark: str


class Thread:
    """The rendered state of one conversation. One task feeds it rows and events, in order."""

    def __init__(self, pages: Pages, markdown: Markdown, greeting: Markup) -> None:
        self._pages = pages
        self._markdown = markdown
        self._greeting = greeting
        self._entries: dict[str, str] = {}
        self._made: dict[tuple[MessageRow, MessageRow | None, bool], str] = {}
        self._running = False
        self._text = ""
        self._void = False
        self._done = 0
        self._drawn = 0

    def apply(self, event: live.LiveEvent) -> bool:
        """Apply an event; returns whether the rows must be read again."""
        match event:
            case live.TextWritten(text):
                self._text += text
                return False
            case live.TextDropped():
                self._start_over()
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
            self._entries = entries
        return [*patches, *await self._draw_text()] if LIVE in self._entries else patches

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
        return thread

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
        self._text, self._void = text, True

    def _should_redraw(self, length: int) -> bool:
        """Whether to redraw; an ever-growing block is redrawn less and less often, to stay cheap."""
        return length != self._drawn and (
            length < _ALWAYS_REDRAWN_CHARS or length > self._drawn * (1.05 if length < LONG else 1.25)
        )

    def _drawn_entries(self, rows: Sequence[MessageRow]) -> dict[str, str]:
        results = {(row.task_id, row.ordinal): row for row in rows if row.kind == "tool_result"}
        shown = [(row, results.get((row.task_id, row.ordinal))) for row in rows if row.kind != "tool_result"]
        made = {(row, result, self._running and result is None): "" for row, result in shown}
        for key in made:
            made[key] = self._made.get(key) or str(self._entry(*key))
        self._made = made
        entries = {f"m{row.id}": html for (row, _, _), html in made.items()}
        return entries | ({LIVE: str(self._pages.part("live"))} if self._running else {})

    def _entry(self, row: MessageRow, result: MessageRow | None, running: bool) -> Markup:
        id, chips = f"m{row.id}", [chip(file) for file in row.attached]
        match row.kind:
            case "user":
                waiting = row.seq is None and row.closed_at is None
                return self._pages.part("user", id, row.text, _note(row), waiting, chips)
            case "assistant":
                return self._pages.part("assistant", id, self._markdown.html(_words(row)), chips, row.remembered)
            case "notice":
                return self._pages.part("notice", id, row.text, chips)
            case "summary":
                return self._pages.part("summary", id, self._markdown.html(row.text))
            case "tool_intent" | "tool_result":
                return self._pages.part("tool", _card(row, result, running=running))
            case _:
                assert_never(row.kind)


def _card(row: MessageRow, result: MessageRow | None, *, running: bool) -> ToolCard:
    card = partial(ToolCard, f"m{row.id}", row.tool or "", row.text)
    if result is None:
        return card(None, "running", "running") if running else card(None, "unknown", "interrupted")
    took = f"{(result.created_at - row.created_at).total_seconds() * 1000:.0f} ms"
    shown, refused = _read_result(result.text)
    return card(shown, "failed", f"failed, {took}") if refused else card(shown, "done", took)


def _words(row: MessageRow) -> str:
    """The text of a message; empty if it only names an attached file, which is shown anyway."""
    return "" if row.text in {f"[{file.path}]" for file in row.attached} else row.text


def _note(row: MessageRow) -> str:
    via = f"via {row.origin}" if row.origin not in {"web", "gateway"} else ""
    stopped = "stopped" if row.closed_at is not None and row.platform_id is not None else ""
    return " · ".join(filter(None, (via, stopped)))


def _read_result(text: str) -> tuple[str, bool]:
    """The tool result as it is shown, and whether it is an error with an explanation."""
    try:
        parsed = json.loads(text)
        shown = json.dumps(parsed, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return text, False
    return shown, isinstance(parsed, dict) and {"error", "message"} <= parsed.keys()
