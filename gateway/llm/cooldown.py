"""Models to try last for a while, after they failed."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.time import Clock
from gateway.llm.errors import ErrorKind, ModelError

_SECONDS = {
    **dict.fromkeys((kind for kind in ErrorKind if kind.transient or kind.busy), 60.0),
    ErrorKind.OVERLOADED: 30.0,
    **dict.fromkeys((ErrorKind.AUTH, ErrorKind.NO_CREDIT, ErrorKind.UNKNOWN_MODEL), 300.0),
}


@dataclass(frozen=True, slots=True)
class Cooling:
    """A model to be tried last for another `seconds`."""

    model: str
    kind: ErrorKind
    seconds: float


class Cooldowns:
    """Kept in memory only: a restart clears all cooldowns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, tuple[float, ErrorKind]] = {}

    def note(self, model: str, error: ModelError) -> None:
        """Start a cooldown after a final failure; a malformed or oversized prompt does not count against the model."""
        usual = _SECONDS.get(error.kind)
        if usual is not None:
            wait = error.retry_after if error.kind.busy and error.retry_after is not None else usual
            self._until[model] = (self._clock.monotonic() + wait, error.kind)

    def clear(self, model: str) -> None:
        """End the cooldown: the model answered."""
        self._until.pop(model, None)

    def order(self, chain: Sequence[str]) -> list[str]:
        """The whole chain, models in cooldown last."""
        cooling = {entry.model for entry in self.current()}
        return sorted(chain, key=lambda model: model in cooling)

    def current(self) -> tuple[Cooling, ...]:
        """The cooldowns in force."""
        now = self._clock.monotonic()
        return tuple(Cooling(model, kind, until - now) for model, (until, kind) in self._until.items() if until > now)
