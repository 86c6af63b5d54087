"""What the journal's files are called: a second of UTC each, under `sessions/` while open, under `memory/` after."""

import re
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

SESSIONS = "sessions"
MEMORY = "memory"
INDEX = f"{MEMORY}/INDEX.md"
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
TIME = re.compile(r"\d{2}-\d{2}-\d{2}\.md")
ROOTS = 1000
BURST = timedelta(hours=1)

_OPEN = f"{SESSIONS}/%Y-%m-%d/%H-%M-%S.md"
_FILED = f"{MEMORY}/%Y%m%d%H%M%S.md"
_SECOND = timedelta(seconds=1)


def open_path(at: datetime) -> str:
    """Where the file of a conversation that goes on lies."""
    return at.astimezone(UTC).strftime(_OPEN)


def filed_path(at: datetime) -> str:
    """Where it lies once it is closed."""
    return at.astimezone(UTC).strftime(_FILED)


def began(path: str) -> datetime:
    """The second that an open or a filed path names."""
    form = _OPEN if path.startswith(f"{SESSIONS}/") else _FILED
    return datetime.strptime(path, form).replace(tzinfo=UTC)


class Seconds:
    """The seconds to try for a new name: what a burst was given a moment ago is not tried again."""

    def __init__(self) -> None:
        self._last: OrderedDict[Path, datetime] = OrderedDict()

    def free(self, root: Path, at: datetime) -> Iterator[datetime]:
        """Ever later seconds from `at` on; the last one taken counts as given."""
        second = at.astimezone(UTC).replace(microsecond=0)
        last = self._last.get(root, second - _SECOND)
        if second <= last < second + BURST:
            second = last + _SECOND
        while True:
            self._last[root] = second
            self._last.move_to_end(root)
            if len(self._last) > ROOTS:
                self._last.popitem(last=False)
            yield second
            second += _SECOND
