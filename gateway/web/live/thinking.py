"""The thinking of a running turn's model, as patches of the page: collapsed, and for how long."""

from time import monotonic

from markupsafe import escape

from gateway.domain.text.texts import GrowingText
from gateway.web.live.sse import Patch
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
        html = self._pages.message("live_thought", self._line(over=over), str(self._text))
        return [Patch("fill", "live-thought", str(html))]

    def _line(self, *, over: bool) -> str:
        words = thought_words(round((self._until - self._since) * 1000))
        return words if over else words.replace("Thought", "Thinking")
