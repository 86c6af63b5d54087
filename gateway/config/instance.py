"""One gateway per data directory: a lock on `gateway.pid`, which also tells others whom to ask to stop."""

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
            raise OwnerMustAct(f"a gateway already runs on {data} (pid {_pid(handle)}); `supaclaw down` stops it")
        os.truncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def holder(data: Path) -> int | None:
    """The process id of the running gateway, None when none runs."""
    try:
        handle = os.open(_lock(data), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid(handle)
    else:
        return None
    finally:
        os.close(handle)


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


def _pid(handle: int) -> int | None:
    text = os.pread(handle, 20, 0).strip()
    return int(text) if text.isdigit() else None


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.02)
        return False
    return True
