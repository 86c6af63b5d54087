"""A client's limits on an answer: where it stops, how many tokens it has, and JSON without the fence around it."""

import re
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

from pydantic import JsonValue

from gateway.domain.text.tokens import estimate
from gateway.web.v1.request_fields import invalid
from gateway.web.v1.turn import Pieces

MAX_STOPS = 16
_MOST_TOKENS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
"""Names of the same limit in the APIs, newest first."""
_FENCED = re.compile(r"\s*(`{3,}|~{3,})(?:[A-Za-z]*[ \t]*(?=[{[])|[^\n`]*\n)(?P<inside>.*?)\n?[ \t]*\1\s*", re.DOTALL)
_FENCE_BEGINS = re.compile(r"\s*(?:[`~]|\Z)")


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
