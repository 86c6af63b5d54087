"""The parts of requests that a model refused: they are left out for a day, then the model is asked again."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from gateway.config.machine import SystemClock
from gateway.domain.time import Clock

ASKED_AGAIN_AFTER = timedelta(days=1)
"""By then the server may run another version of the model."""
IMAGES = "images"
THINKING = "thinking "
"""Before the level that is refused."""
CONTEXT = "a context of "
"""Before what was asked for, and what the model runs with."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A `part` that one model, at one address, doesn't take; `source` stands for both, as in `Endpoint.source`."""

    source: str
    part: str
    model: str
    at: datetime


class Refusals:
    """The refusals of all models, in memory; `news` are those that are not stored yet."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._known: dict[str, dict[str, datetime]] = {}
        self._news: list[Refusal] = []

    def of(self, source: str) -> frozenset[str]:
        """The parts that are left out for this model now."""
        since = self._clock.now() - ASKED_AGAIN_AFTER
        return frozenset(part for part, at in self._known.get(source, {}).items() if at > since)

    def note(self, source: str, model: str, part: str) -> None:
        """The model has just refused this part."""
        self._news.append(refusal := Refusal(source, part, model, self._clock.now()))
        self.restore([refusal])

    def restore(self, refusals: Iterable[Refusal]) -> None:
        """Add refusals of an earlier time."""
        for each in refusals:
            parts = self._known.setdefault(each.source, {})
            parts[each.part] = max(each.at, parts.get(each.part, each.at))

    def take_news(self) -> list[Refusal]:
        """The refusals since the last call."""
        news, self._news = self._news, []
        return news
