"""One gateway per data directory: a lock on `gateway.pid`, which also records the process id and the address."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID, uuid4

from gateway.config.durable import blame, make_once, overwrite
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import InstanceId

_LOCK_TRIES = 10
"""`holder` takes the lock for an instant, which must not make a start fail."""


@contextmanager
def hold_instance(data: Path) -> Iterator[None]:
    """Lock the data directory; raises `OwnerMustAct` if a gateway holds it. A process that dies releases the lock."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(_lock(data), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not any(_try_lock(handle) for _ in range(_LOCK_TRIES)):
            raise OwnerMustAct(f"a gateway already runs on {data} (pid {holder(data)}); `supaclaw down` stops it")
        try:
            overwrite(handle, f"{os.getpid()}\n".encode())
        except OSError as error:
            raise blame(error)(
                f"{_lock(data)} cannot be written ({error.strerror}): make room and start again"
            ) from error
        yield
    finally:
        os.close(handle)


def record_address(data: Path, url: str) -> None:
    """Record the URL of this gateway; the caller holds the lock."""
    with _lock(data).open("a", encoding="ascii") as file:
        file.write(f"{url}\n")


def holder(data: Path) -> int | None:
    """The process id of the running gateway; None if none is running."""
    pid = next(iter(_record(data)), "")
    return int(pid) if pid.isdigit() else None


def address(data: Path) -> str | None:
    """The URL of the running gateway, as it recorded it; None if none is running."""
    return next(iter(_record(data)[1:]), None)


def instance_id(data: Path) -> InstanceId:
    """The id of this data directory's gateway, stable across restarts; the caller holds the lock."""
    path = data / "instance"
    with suppress(FileNotFoundError, ValueError):
        return InstanceId(UUID(path.read_text(encoding="ascii").strip()))
    identity = InstanceId(uuid4())
    path.unlink(missing_ok=True)
    make_once(path, f"{identity}\n".encode())
    return identity


def _lock(data: Path) -> Path:
    return data / "gateway.pid"


def _record(data: Path) -> list[str]:
    """The lines recorded by the running gateway: process id, URL. Empty if none is running."""
    try:
        handle = os.open(_lock(data), os.O_RDONLY)
    except FileNotFoundError:
        return []
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(handle, 500, 0).decode("ascii", "replace").splitlines()
    else:
        return []
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.02)
        return False
    return True
