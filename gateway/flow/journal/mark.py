"""The mark: a time before which everything in the journal is in the database. Only files changed since are read."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from gateway.config.files import read_regular, write_regular

SLACK = timedelta(minutes=10)
"""Files that were written so long before the mark are looked at all the same: a clock may have been corrected."""

log = structlog.get_logger(__name__)


def read_since(mark: Path, now: datetime) -> datetime:
    """From when on files are read; all of them without a mark, or when it lies ahead of the clock."""
    try:
        at = datetime.fromtimestamp(int(read_regular(mark, 100)), UTC)
    except (OSError, ValueError, OverflowError):
        at = datetime.max.replace(tzinfo=UTC)
    return at - SLACK if at <= now else datetime.min.replace(tzinfo=UTC)


def write_mark(mark: Path, at: datetime) -> None:
    """A number of seconds: one that a crash cuts short is an earlier time."""
    try:
        write_regular(mark, b"%d" % at.timestamp())
    except OSError as exc:
        log.warning("journal.not_marked", error=str(exc))
