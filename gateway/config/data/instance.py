"""One gateway per data folder: a lock on `gateway.pid`, which also records the process id and the address; its id; and
the records of its starts, to detect crashes."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from os.path import samestat
from pathlib import Path
from uuid import UUID, uuid4

import structlog
from pydantic import AwareDatetime, BaseModel, ValidationError

from gateway.config.data.files import (
    clear_way,
    create_private,
    error_type,
    open_regular,
    overwrite,
    read_regular,
    replace_regular,
)
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import InstanceId
from gateway.domain.time import Clock

_STARTS = "starts"
_LOCK_TRIES = 10
"""`running_pid` takes the lock for an instant, which must not make a start fail."""


class InstanceLock:
    """The lock, and the record in its file: the process id, then the URL."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._record = f"{os.getpid()}\n"
        self._handle: int | None = None

    def record(self, url: str) -> None:
        """Record the URL of this gateway."""
        self._record += f"{url}\n"
        self.keep()

    def keep(self) -> None:
        """Restore a changed or deleted file; raises `OwnerMustAct` if another gateway has it."""
        path = _lock_file(self._data)
        handle = self._handle
        if handle is None or not os.path.exists(path) or not samestat(os.fstat(handle), os.stat(path)):
            handle = self._take(path)
        elif _recorded_lines(self._data) == self._record.splitlines():
            return
        try:
            overwrite(handle, self._record.encode())
        except OSError as error:
            problem = f"{path} cannot be written ({error.strerror}): make room and start again"
            raise error_type(error)(problem) from error

    def release(self) -> None:
        """Release the lock."""
        if self._handle is not None:
            os.close(self._handle)

    def _take(self, path: Path) -> int:
        clear_way(path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        if not any(_try_lock(handle) for _ in range(_LOCK_TRIES)):
            os.close(handle)
            running = f"a gateway already runs on {self._data} (pid {running_pid(self._data)})"
            raise OwnerMustAct(f"{running}; `supaclaw down` stops it")
        self.release()
        self._handle = handle
        return handle


@contextmanager
def hold_instance(data: Path) -> Iterator[InstanceLock]:
    """Lock the data directory; raises `OwnerMustAct` if a gateway holds it. A process that dies releases the lock."""
    hold = InstanceLock(data)
    try:
        hold.keep()
        yield hold
    finally:
        hold.release()


def running_pid(data: Path) -> int | None:
    """The process id of the running gateway; None if none is running."""
    pid = next(iter(_recorded_lines(data)), "")
    return int(pid) if pid.isdigit() else None


def running_address(data: Path) -> str | None:
    """The URL of the running gateway, as it recorded it; None if none is running."""
    return next(iter(_recorded_lines(data)[1:]), None)


def instance_id(data: Path) -> InstanceId:
    """The id of this data directory's gateway, stable across restarts; the caller holds the lock."""
    if (known := known_instance_id(data)) is not None:
        return known
    identity = InstanceId(uuid4())
    create_private(data / "instance", f"{identity}\n".encode(), anew=True)
    return identity


def known_instance_id(data: Path) -> InstanceId | None:
    """The id of this data directory's gateway, or None before its first start."""
    with suppress(OSError, ValueError):
        return InstanceId(UUID(read_regular(data / "instance", 100).decode().strip()))
    return None


def _lock_file(data: Path) -> Path:
    return data / "gateway.pid"


def _recorded_lines(data: Path) -> list[str]:
    """The lines recorded by the running gateway: process id, URL. Empty if none is running."""
    with suppress(OSError), open_regular(_lock_file(data), os.O_RDONLY) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.pread(handle, 500, 0).decode("ascii", "replace").splitlines()
    return []


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.02)
        return False
    return True


MAX_RECORDS = 100
CRASH_LOOP_COUNT = 5
CRASH_LOOP_WINDOW = timedelta(minutes=10)
NOTICE_INTERVAL = timedelta(hours=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StartHistory:
    """The previous runs. A crashed run counts as ended at the start of the next one.

    `crashes` are the ends of crashed runs, oldest first; the last `consecutive` of them are consecutive.
    """

    crashes: tuple[datetime, ...] = ()
    consecutive: int = 0
    noticed_at: datetime | None = None

    def ended(self, now: datetime, within: timedelta) -> int:
        """The number of crashes within the given time."""
        return _count_within(self.crashes, now, within)

    def looping(self, now: datetime) -> int:
        """The number of consecutive crashes within ten minutes if it is a crash loop, else 0."""
        count = _count_within(self.crashes[len(self.crashes) - self.consecutive :], now, CRASH_LOOP_WINDOW)
        return count if count >= CRASH_LOOP_COUNT else 0

    def notice(self, now: datetime) -> str | None:
        """The notice of a crash loop for the owner; None if there is none, or one was sent within the hour."""
        count = self.looping(now)
        if not count or (self.noticed_at is not None and timedelta(0) <= now - self.noticed_at < NOTICE_INTERVAL):
            return None
        return (
            f"I crashed or was killed {count} times within 10 minutes. The log says what I was doing, "
            "`supaclaw doctor` looks for causes; the system's log shows whether memory ran out."
        )


class _Start(BaseModel):
    at: AwareDatetime
    clean: bool = False


class _StartRecord(BaseModel):
    starts: list[_Start] = []
    told_at: AwareDatetime | None = None


def record_start(data: Path, clock: Clock) -> StartHistory:
    """Record this start; the caller holds the lock. Never raises: a record that cannot be read or written is logged."""
    record = _read_starts(data)
    now = clock.now()
    ends = [*(start.at for start in record.starts[1:]), now]
    unclean = [end for start, end in zip(record.starts, ends, strict=False) if not start.clean]
    clean_at = max((place for place, start in enumerate(record.starts, start=1) if start.clean), default=0)
    _write_starts(data, _StartRecord(starts=[*record.starts, _Start(at=now)][-MAX_RECORDS:], told_at=record.told_at))
    return StartHistory(tuple(unclean), len(record.starts) - clean_at, record.told_at)


def record_stop(data: Path) -> None:
    """Record that this run was stopped on request."""
    record = _read_starts(data)
    if record.starts:
        record.starts[-1].clean = True
        _write_starts(data, record)


def record_notice(data: Path, clock: Clock) -> None:
    """Record that the owner was notified of the crash loop."""
    record = _read_starts(data)
    record.told_at = clock.now()
    _write_starts(data, record)


def _count_within(ends: tuple[datetime, ...], now: datetime, within: timedelta) -> int:
    return sum(now - within <= end <= now for end in ends)


def _read_starts(data: Path) -> _StartRecord:
    file = data / _STARTS
    try:
        return _StartRecord.model_validate_json(read_regular(file))
    except FileNotFoundError:
        pass
    except (OSError, ValidationError) as exc:
        log.warning("starts.unreadable", file=str(file), error=type(exc).__name__, hint="starting a new record")
    return _StartRecord()


def _write_starts(data: Path, record: _StartRecord) -> None:
    """Replace the file without fsync: losing the record in a power cut is acceptable."""
    file = data / _STARTS
    try:
        replace_regular(file, record.model_dump_json().encode())
    except OSError as exc:
        log.warning("starts.unwritable", file=str(file), error=exc.strerror, hint="free space or fix its mode")
