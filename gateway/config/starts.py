"""The record of starts in the data folder: how often the gateway ended without having been stopped."""

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import structlog
from pydantic import AwareDatetime, BaseModel, ValidationError

from gateway.domain.clock import Clock

KEPT = 100
LOOP_ENDS = 5
LOOP_WITHIN = timedelta(minutes=10)
QUIET = timedelta(hours=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Starts:
    """The runs before this one. A run that was not stopped ended at the start of the next one, at the latest.

    `unclean` are those ends, oldest first; the last `in_a_row` of them had no clean stop in between.
    """

    unclean: tuple[datetime, ...] = ()
    in_a_row: int = 0
    told_at: datetime | None = None

    def ended(self, now: datetime, within: timedelta) -> int:
        """How many runs ended like that lately."""
        return _within(self.unclean, now, within)

    def looping(self, now: datetime) -> int:
        """How many ended like that in a row and within ten minutes, if they are so many that something is wrong."""
        count = _within(self.unclean[len(self.unclean) - self.in_a_row :], now, LOOP_WITHIN)
        return count if count >= LOOP_ENDS else 0

    def notice(self, now: datetime) -> str | None:
        """What to tell the owner of a crash loop, unless that was told within the hour."""
        count = self.looping(now)
        if not count or (self.told_at is not None and timedelta(0) <= now - self.told_at < QUIET):
            return None
        return (
            f"I was ended {count} times within 10 minutes without being stopped. The log says what I was doing, "
            "`supaclaw doctor` looks for causes; the system's log shows whether memory ran out."
        )


class _Start(BaseModel):
    at: AwareDatetime
    clean: bool = False


class _Record(BaseModel):
    starts: list[_Start] = []
    told_at: AwareDatetime | None = None


def record_start(data: Path, clock: Clock) -> Starts:
    """Add this start; the caller holds the instance. Never raises: a record that cannot be read or kept is logged."""
    record = _read(data)
    now = clock.now()
    ends = [*(start.at for start in record.starts[1:]), now]
    unclean = [end for start, end in zip(record.starts, ends, strict=False) if not start.clean]
    clean_at = max((place for place, start in enumerate(record.starts, start=1) if start.clean), default=0)
    _write(data, _Record(starts=[*record.starts, _Start(at=now)][-KEPT:], told_at=record.told_at))
    return Starts(tuple(unclean), len(record.starts) - clean_at, record.told_at)


def record_stop(data: Path) -> None:
    """This run ends because it was told to."""
    record = _read(data)
    if record.starts:
        record.starts[-1].clean = True
        _write(data, record)


def record_told(data: Path, clock: Clock) -> None:
    """The owner knows of the crash loop."""
    record = _read(data)
    record.told_at = clock.now()
    _write(data, record)


def _within(ends: tuple[datetime, ...], now: datetime, within: timedelta) -> int:
    return sum(now - within <= end <= now for end in ends)


def _read(data: Path) -> _Record:
    try:
        return _Record.model_validate_json(_file(data).read_bytes())
    except FileNotFoundError:
        return _Record()
    except (OSError, ValidationError) as exc:
        log.warning("starts.unreadable", file=str(_file(data)), error=type(exc).__name__, hint="it begins anew")
        return _Record()


def _write(data: Path, record: _Record) -> None:
    """Replaces the file, without waiting for the disk: after a power cut an empty record will do."""
    beside = _file(data).with_suffix(".new")
    try:
        with open(beside, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(record.model_dump_json())
        beside.replace(_file(data))
    except OSError as exc:
        log.warning("starts.unwritable", file=str(_file(data)), error=exc.strerror, hint="make room or allow writing")


def _file(data: Path) -> Path:
    return data / "starts"
