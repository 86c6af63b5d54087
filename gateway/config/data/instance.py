"""One gateway per data directory: a lock on `gateway.pid`, which also records the process id and the address."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os.path import samestat
from pathlib import Path
from uuid import UUID, uuid4

from gateway.config.data.durable import error_type, make_once
from gateway.config.data.files import clear_way, open_regular, overwrite, read_regular
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import InstanceId

_LOCK_TRIES = 10
"""`holder` takes the lock for an instant, which must not make a start fail."""


class Hold:
    """The lock, and what is recorded in its file: the process id, then the URL."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._record = f"{os.getpid()}\n"
        self._handle: int | None = None

    def record(self, url: str) -> None:
        """Record the URL of this gateway too."""
        self._record += f"{url}\n"
        self.keep()

    def keep(self) -> None:
        """Write the file again if it is not as it was left; raises `OwnerMustAct` if another gateway has it."""
        path = _lock(self._data)
        handle = self._handle
        if handle is None or not os.path.exists(path) or not samestat(os.fstat(handle), os.stat(path)):
            handle = self._take(path)
        elif _record(self._data) == self._record.splitlines():
            return
        try:
            overwrite(handle, self._record.encode())
        except OSError as error:
            problem = f"{path} cannot be written ({error.strerror}): make room and start again"
            raise error_type(error)(problem) from error

    def release(self) -> None:
        """Let others have it."""
        if self._handle is not None:
            os.close(self._handle)

    def _take(self, path: Path) -> int:
        clear_way(path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        if not any(_try_lock(handle) for _ in range(_LOCK_TRIES)):
            os.close(handle)
            running = f"a gateway already runs on {self._data} (pid {holder(self._data)})"
            raise OwnerMustAct(f"{running}; `supaclaw down` stops it")
        self.release()
        self._handle = handle
        return handle


@contextmanager
def hold_instance(data: Path) -> Iterator[Hold]:
    """Lock the data directory; raises `OwnerMustAct` if a gateway holds it. A process that dies releases the lock."""
    hold = Hold(data)
    try:
        hold.keep()
        yield hold
    finally:
        hold.release()


def holder(data: Path) -> int | None:
    """The process id of the running gateway; None if none is running."""
    pid = next(iter(_record(data)), "")
    return int(pid) if pid.isdigit() else None


def address(data: Path) -> str | None:
    """The URL of the running gateway, as it recorded it; None if none is running."""
    return next(iter(_record(data)[1:]), None)


def instance_id(data: Path) -> InstanceId:
    """The id of this data directory's gateway, stable across restarts; the caller holds the lock."""
    if (known := known_instance(data)) is not None:
        return known
    identity = InstanceId(uuid4())
    make_once(data / "instance", f"{identity}\n".encode(), anew=True)
    return identity


def known_instance(data: Path) -> InstanceId | None:
    """The same if there has been one."""
    with suppress(OSError, ValueError):
        return InstanceId(UUID(read_regular(data / "instance", 100).decode().strip()))
    return None


def _lock(data: Path) -> Path:
    return data / "gateway.pid"


def _record(data: Path) -> list[str]:
    """The lines recorded by the running gateway: process id, URL. Empty if none is running."""
    with suppress(OSError), open_regular(_lock(data), os.O_RDONLY) as handle:
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
