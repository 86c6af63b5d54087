"""Quarantine: a message that cannot be stored by its own fault must not hold up those behind it."""

from collections import Counter

TRIES = 3
REMEMBERED = 1_000


class Quarantine:
    """Counts the failures of each message; the platform sends it again until we take it."""

    def __init__(self) -> None:
        self._failures: Counter[tuple[str, ...]] = Counter()

    def give_up(self, key: tuple[str, ...]) -> bool:
        """Note a failure; whether it was one too many."""
        if key not in self._failures and len(self._failures) >= REMEMBERED:
            self._failures.clear()
        self._failures[key] += 1
        return self._failures[key] >= TRIES
