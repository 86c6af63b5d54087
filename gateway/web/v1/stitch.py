"""What may be sent of a text that is still being written: the pieces have to make up what is stored in the end."""

from gateway.domain.digest import spoken


class Stitch:
    """Follows a turn's text through retries and tool calls; every method answers what can be sent now."""

    def __init__(self, settled: tuple[str, ...] = (), written: str = "") -> None:
        self._settled = list(settled)
        self._part = written
        self._sent = ""

    def write(self, text: str) -> str:
        """More text; whitespace waits for what follows it, since the end of a text is trimmed."""
        self._part += text
        return self._advance(spoken([*self._settled, self._part])) or ""

    def settle(self) -> None:
        """What is written stands: a tool call follows, then another text."""
        self._settled.append(self._part)
        self._part = ""

    def drop(self) -> None:
        """What is written since the last tool call is void; the same words may come again."""
        self._part = ""

    def finish(self, text: str) -> str | None:
        """The rest, now that the whole is known; None when something else was sent already."""
        return self._advance(text)

    def _advance(self, text: str) -> str | None:
        if not text.startswith(self._sent):
            return None
        fresh = text[len(self._sent) :]
        self._sent = text
        return fresh
