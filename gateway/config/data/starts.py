"""The record of starts in the data folder, to detect crashes."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import structlog
from pydantic import AwareDatetime, BaseModel, ValidationError

from gateway.config.data.files import read_regular, replace_regular
from gateway.domain.clock import Clock

MAX_RECORDS = 100
CRASH_LOOP_COUNT = 5
CRASH_LOOP_WINDOW = timedelta(minutes=10)
NOTICE_INTERVAL = timedelta(hours=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Starts:
    """The previous runs. A crashed run counts as ended at the start of the next one.

    `unclean` are the ends of crashed runs, oldest first; the last `in_a_row` of them are consecutive.
    """

    unclean: tuple[datetime, ...] = ()
    in_a_row: int = 0
    told_at: datetime | None = None

    def ended(self, now: datetime, within: timedelta) -> int:
        """The number of crashes within the given time."""
        return _within(self.unclean, now, within)

    def looping(self, now: datetime) -> int:
        """The number of consecutive crashes within ten minutes if it is a crash loop, else 0."""
        count = _within(self.unclean[len(self.unclean) - self.in_a_row :], now, CRASH_LOOP_WINDOW)
        return count if count >= CRASH_LOOP_COUNT else 0

    def notice(self, now: datetime) -> str | None:
        """The notice of a crash loop for the owner; None if there is none, or one was sent within the hour."""
        count = self.looping(now)
        if not count or (self.told_at is not None and timedelta(0) <= now - self.told_at < NOTICE_INTERVAL):
            return None
        return (
            f"I crashed or was killed {count} times within 10 minutes. The log says what I was doing, "
            "`supaclaw doctor` looks for causes; the system's log shows whether memory ran out."
        )


class _Start(BaseModel):
    at: AwareDatetime
    clean: bool = False


class _Record(BaseModel):
    starts: list[_Start] = []
    told_at: AwareDatetime | None = None


def record_start(data: Path, clock: Clock) -> Starts:
    """Record this start; the caller holds the lock. Never raises: a record that cannot be read or written is logged."""
    record = _read(data)
    now = clock.now()
    ends = [*(start.at for start in record.starts[1:]), now]
    unclean = [end for start, end in zip(record.starts, ends, strict=False) if not start.clean]
    clean_at = max((place for place, start in enumerate(record.starts, start=1) if start.clean), default=0)
    _write(data, _Record(starts=[*record.starts, _Start(at=now)][-MAX_RECORDS:], told_at=record.told_at))
    return Starts(tuple(unclean), len(record.starts) - clean_at, record.told_at)


def record_stop(data: Path) -> None:
    """Record that this run was stopped on request."""
    record = _read(data)
    if record.starts:
        record.starts[-1].clean = True
        _write(data, record)


def record_told(data: Path, clock: Clock) -> None:
    """Record that the owner was notified of the crash loop."""
    record = _read(data)
    record.told_at = clock.now()
    _write(data, record)


def _within(ends: tuple[datetime, ...], now: datetime, within: timedelta) -> int:
    return sum(now - within <= end <= now for end in ends)


def _read(data: Path) -> _Record:
    try:
        return _Record.model_validate_json(read_regular(_file(data)))
    except FileNotFoundError:
        return _Record()
    except (OSError, ValidationError) as exc:
        log.warning("starts.unreadable", file=str(_file(data)), error=type(exc).__name__, hint="starting a new record")
        return _Record()


def _write(data: Path, record: _Record) -> None:
    """Replace the file without fsync: losing the record in a power cut is acceptable."""
    try:
        replace_regular(_file(data), record.model_dump_json().encode())
    except OSError as exc:
        log.warning("starts.unwritable", file=str(_file(data)), error=exc.strerror, hint="free space or fix its mode")


def _file(data: Path) -> Path:
    return data / "starts"
