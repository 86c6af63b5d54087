"""Halting: what would only fail again, for the same reason, is not tried again."""

from collections.abc import Callable

from gateway.domain.settings import ModelSettings


class Halt:
    """Why heartbeats have stopped: over as soon as the models are configured anew, or the gateway starts again."""

    def __init__(self, models: Callable[[], ModelSettings]) -> None:
        self._models = models
        self._stopped: tuple[str, ModelSettings] | None = None

    @property
    def why(self) -> str | None:
        """None while they go on."""
        if self._stopped is not None and self._stopped[1] != self._models():
            self._stopped = None
        return self._stopped[0] if self._stopped else None

    def stop(self, why: str) -> None:
        """There is none by itself with the models that are configured now."""
        self._stopped = why, self._models()

    def lift(self) -> None:
        """One that somebody asked for has worked."""
        self._stopped = None
