"""Log files that are old enough to go, where the owner wants them to go at all."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

from gateway.logs.trails import Trail, gateway_trail, session_trails


def prune(folder: Path, keep: timedelta | None, today: date) -> int:
    """Delete daily files every line of which is older than `keep`, and session folders left empty; how many files.

    `keep` None deletes nothing. Links, and files whose names are not ours, stay. What cannot be deleted is left for
    the next time. Blocks.
    """
    if keep is None:
        return 0
    sessions = session_trails(folder).values()
    gone = sum(_deleted(path) for trail in (gateway_trail(folder), *sessions) for path in _old(trail, keep, today))
    for trail in sessions:
        with suppress(OSError):
            trail.folder.rmdir()
    return gone


def _old(trail: Trail, keep: timedelta, today: date) -> Iterator[Path]:
    for day, path in trail.files().items():
        last_line_at_least = today - day - timedelta(days=1)
        if last_line_at_least >= keep and not path.is_symlink():
            yield path


def _deleted(path: Path) -> bool:
    with suppress(OSError):
        path.unlink()
        return True
    return False
