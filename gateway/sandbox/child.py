"""Runs a function in a forked child that has given up all rights it doesn't need."""

import json
import logging
import os
import resource
import select
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

import gateway
from gateway.domain.errors import SupaclawError
from gateway.domain.json import Json
from gateway.sandbox.jail import landlock, seccomp
from gateway.sandbox.jail.kernel import die_with, drop_privileges
from gateway.sandbox.jail.landlock import FileAccess

_MAX_REPLY_BYTES = 1024**2
_OPEN_FILES = 256
_POLL_SECONDS = 0.1
_BLOCK = 4096

log = logging.getLogger(__name__)


class ChildFailed(SupaclawError):
    """The child failed, crashed or exceeded a limit; the text says how."""


@dataclass(frozen=True, slots=True)
class Jail:
    """The rights of the child: read the paths in `reads`, and fill one folder."""

    reads: tuple[str, ...]
    folder: str
    memory: int
    """Bytes of address space, beyond those at the fork: threads of the parent may hold gigabytes of it."""
    seconds: float
    space: int
    """Bytes in the folder."""


_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/dev/urandom")


def python_files() -> tuple[str, ...]:
    """The libraries that a child may need for its imports, and this program."""
    packages = (path for path in sys.path if path.endswith("-packages"))
    return (*_SYSTEM, sysconfig.get_path("stdlib"), *packages, *gateway.__path__)


def run_in_jail(jail: Jail, work: Callable[[], Json]) -> Json:
    """Run `work` in a child and return its result, at most a megabyte of JSON, which is as trusted as its input.

    Raises `ChildFailed`. If the kernel has neither Landlock nor seccomp, only the other limits hold. Call it from the
    main thread, one at a time.
    """
    parent, (answers, answer) = os.getpid(), os.pipe()
    child = os.fork()
    if child == 0:
        _run_child(jail, work, parent, answer)
    os.close(answer)
    try:
        body = b"".join(_received(answers, jail))
    finally:
        os.close(answers)
        os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return _value(body, code)


def _run_child(jail: Jail, work: Callable[[], Json], parent: int, answer: int) -> NoReturn:
    """Run `work` in the child and exit; never returns into the parent's frames."""
    try:
        _keep_only(answer)
        _limit(jail)
        _give_up(jail, parent)
        view = memoryview(json.dumps(_result_of(work)).encode())
        while view:
            view = view[os.write(3, view) :]
        os._exit(0)
    finally:
        os._exit(1)


def _result_of(work: Callable[[], Json]) -> Json:
    try:
        return {"value": work()}
    except MemoryError:
        return {"failed": "needs more memory than it may take"}
    except Exception as exc:
        log.exception("sandbox.work_broken")
        return {"failed": " ".join(f"{type(exc).__name__}: {exc}".split())}


def _keep_only(answer: int) -> None:
    """Keep this descriptor, as 3, and /dev/null as the standard ones; close all others and leave the terminal."""
    os.setsid()
    null, copy = os.open(os.devnull, os.O_RDWR), os.dup(answer)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.dup2(copy, 3)
    os.closerange(4, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2**20))


def _limit(jail: Jail) -> None:
    bounds = {
        resource.RLIMIT_AS: _address_space() + jail.memory,
        resource.RLIMIT_CPU: int(jail.seconds) + 1,
        resource.RLIMIT_FSIZE: jail.space,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    for limit, value in bounds.items():
        # Not every system has every limit.
        with suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))
    os.umask(0o077)


def _address_space() -> int:
    """Bytes of address space of this process, as the kernel counts them for its limit; 0 if unknown."""
    with suppress(OSError), open("/proc/self/statm", "rb") as counts:
        return int(counts.read().split()[0]) * resource.getpagesize()
    return 0


def _give_up(jail: Jail, parent: int) -> None:
    """Give up all rights that this kernel can remove; does nothing on other systems."""
    if os.uname().sysname != "Linux":
        return
    drop_privileges()
    die_with(parent, signal.SIGKILL)
    if landlock.abi():
        nothing = FileAccess.READ_FILE | FileAccess.WRITE_FILE
        reads = dict.fromkeys(jail.reads, FileAccess.READ)
        landlock.restrict({**reads, os.devnull: nothing, jail.folder: FileAccess.KEEP_FILES})
    if seccomp.supported():
        seccomp.restrict()


def _received(answers: int, jail: Jail) -> Iterator[bytes]:
    """Yield the reply of the child until it ends; raises `ChildFailed` beyond a limit."""
    deadline, left = time.monotonic() + jail.seconds, _MAX_REPLY_BYTES
    poll = select.poll()
    poll.register(answers, select.POLLIN)
    while left:
        if time.monotonic() > deadline:
            raise ChildFailed(f"took longer than {jail.seconds:g} seconds and was stopped")
        if _size(jail.folder) > jail.space:
            raise ChildFailed("wrote more than it may")
        if poll.poll(_POLL_SECONDS * 1000):
            if not (piece := os.read(answers, min(left, 2**16))):
                return
            left -= len(piece)
            yield piece
    raise ChildFailed("answered with more than is taken")


def _size(folder: str) -> int:
    """Bytes on disk of a folder, which holds plain files only if the jail works."""
    size = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            size += max(_BLOCK, entry.stat(follow_symlinks=False).st_blocks * 512)
    return size


def _value(body: bytes, code: int) -> Json:
    if not body:
        raise ChildFailed(describe_exit(code))
    with suppress(ValueError, RecursionError):
        answer: Json = json.loads(body)
        match answer:
            case {"value": value}:
                return value
            case {"failed": str(text)}:
                raise ChildFailed(text[:500])
    raise ChildFailed("answered with nonsense")


def describe_exit(code: int) -> str:
    """How a process ended, by its exit code."""
    if code >= 0:
        return f"the process ended with code {code}"
    return f"the process was ended by signal {-code} ({signal.strsignal(-code)}); it may have run out of memory"
