"""What an import came to."""

from collections import Counter
from dataclasses import dataclass, field

from gateway.domain.memory.imports import Damaged

MOST_DAMAGED = 100
"""Damaged places that are kept; more are counted."""


@dataclass(slots=True)
class Tally:
    """Counts of what was stored, or in a dry run would be; and what was left out."""

    memories: int = 0
    sessions: int = 0
    messages: int = 0
    tasks: int = 0
    learnings: int = 0
    known: int = 0
    """Imported before."""
    passed: Counter[str] = field(default_factory=Counter)
    """Left out on purpose, by reason."""
    damaged: list[Damaged] = field(default_factory=list)
    more_damaged: int = 0

    def damage(self, place: str, why: str) -> None:
        """Note something that cannot be imported."""
        if len(self.damaged) < MOST_DAMAGED:
            self.damaged.append(Damaged(place, why))
        else:
            self.more_damaged += 1

    @property
    def found(self) -> bool:
        """Whether there was anything to import, new or not."""
        return bool(self.stored or self.known or self.passed)

    @property
    def stored(self) -> int:
        """The number of new things."""
        return self.memories + self.messages + self.tasks + self.learnings

    def add(self, other: "Tally") -> None:
        """Take over the counts of what a batch stored."""
        self.memories += other.memories
        self.sessions += other.sessions
        self.messages += other.messages
        self.tasks += other.tasks
        self.learnings += other.learnings
        self.known += other.known

    def __str__(self) -> str:
        """ "47 memories, 12 sessions, 3 tasks, 5 learnings"."""
        counts = {"memory": self.memories, "session": self.sessions, "task": self.tasks, "learning": self.learnings}
        return ", ".join(f"{count} {_plural(name, count)}" for name, count in counts.items())


def _plural(name: str, count: int) -> str:
    if count == 1:
        return name
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
