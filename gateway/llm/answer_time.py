"""The time that one answer of a model takes."""

from dataclasses import dataclass, field

from gateway.domain.time import Clock


@dataclass(slots=True)
class AnswerTime:
    """The time that an answer takes, and the part of it that the model thinks, in milliseconds."""

    clock: Clock
    _started: float = field(init=False)
    _thought_since: float | None = None
    _thought_until: float | None = None

    def __post_init__(self) -> None:
        self._started = self.clock.monotonic()

    def note(self, *, thinks: bool) -> None:
        """A piece of the thinking or of the answer has arrived; hidden thinking ends with the first of the answer."""
        now = self.clock.monotonic()
        if thinks:
            self._thought_since = now if self._thought_since is None else self._thought_since
        if thinks or self._thought_until is None:
            self._thought_until = now

    @property
    def passed(self) -> int:
        """Since the request was sent."""
        return round((self.clock.monotonic() - self._started) * 1000)

    @property
    def thinking(self) -> int:
        """From the first to the last of the thinking; where it is hidden, all before the answer."""
        since = self._started if self._thought_since is None else self._thought_since
        return self.passed if self._thought_until is None else round((self._thought_until - since) * 1000)
