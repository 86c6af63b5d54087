"""One gateway per data directory: a lock on `gateway.pid`, which also tells others whom to stop and where to ask."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID, uuid4

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import InstanceId

_TRIES = 10
"""A look by `holder` takes the lock for an instant; that must not stop a start."""


@contextmanager
def hold_instance(data: Path) -> Iterator[None]:
    """Be the gateway of this data directory; raises `OwnerMustAct` when another is. A dead process holds nothing."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(_lock(data), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not any(_taken(handle) for _ in range(_TRIES)):
            raise OwnerMustAct(f"a gateway already runs on {data} (pid {holder(data)}); `supaclaw down` stops it")
        os.truncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def record_address(data: Path, url: str) -> None:
    """Note where the web of this gateway is reached; the caller holds the instance."""
    with _lock(data).open("a", encoding="ascii") as file:
        file.write(f"{url}\n")


def holder(data: Path) -> int | None:
    """The process id of the running gateway, None when none runs."""
    pid = next(iter(_record(data)), "")
    return int(pid) if pid.isdigit() else None


def address(data: Path) -> str | None:
    """Where the web of the running gateway is reached, whatever the environment says; None when none runs."""
    return next(iter(_record(data)[1:]), None)


def instance_id(data: Path) -> InstanceId:
    """Who the gateway of this data directory is, the same over restarts; the caller holds the instance."""
    path = data / "instance"
    with suppress(FileNotFoundError, ValueError):
        return InstanceId(UUID(path.read_text(encoding="ascii").strip()))
    identity = InstanceId(uuid4())
    beside = path.with_suffix(".new")
    beside.write_text(f"{identity}\n", encoding="ascii")
    beside.replace(path)
    return identity


def _lock(data: Path) -> Path:
    return data / "gateway.pid"


def _record(data: Path) -> list[str]:
    """What the running gateway noted, a line each: its process id, its address. Empty when none runs."""
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


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.02)
        return False
    return True
