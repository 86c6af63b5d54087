"""The server process of a cluster: alive or not, started, asked to stop; its shared buffers and its socket.

Every process of the server inherits a descriptor of the cluster's folder that holds a file lock: the lock is free
exactly when none of them is left, whatever a stale pid file says."""

import fcntl
import hashlib
import os
import re
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from gateway.config.data.files import clear_way, read_regular
from gateway.config.machine import available_memory
from gateway.domain.errors import OwnerMustAct
from gateway.store.embedded.cluster import SOCKETS, give, opened, reach, restore_settings
from gateway.store.embedded.programs import Programs, ServerLog, find_programs, program_error, reason, service_uid

_MIN_BUFFERS = 32 * 2**20
_MEMORY_SHARE = 8
"""The part of the machine's memory that is never exceeded: the page cache, the gateway and its jobs need the rest."""
_DEFAULT_BUFFERS = "32MB"
_BUFFERS_SETTING = re.compile(r"^\s*shared_buffers\s*=?\s*'?([^'#\s]+)", re.IGNORECASE | re.MULTILINE)


def buffer_options(folder: Path, memory: int) -> str:
    """Options of the server of `folder` on a machine of so many bytes; none where the owner chose a value."""
    if any(value != _DEFAULT_BUFFERS for value in _buffer_settings(folder)):
        return ""
    return (
        f"-c shared_buffers={max(_MIN_BUFFERS, min(_folder_bytes(folder / 'base'), memory // _MEMORY_SHARE)) // 1024}kB"
    )


def _buffer_settings(folder: Path) -> Iterator[str]:
    for name in ("postgresql.conf", "postgresql.auto.conf"):
        with suppress(OSError):
            yield from _BUFFERS_SETTING.findall((folder / name).read_text(encoding="utf-8", errors="replace"))


def _folder_bytes(folder: Path) -> int:
    """Bytes of all files below."""
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, file)).st_size
    return total


SOCKET = ".s.PGSQL.5432"
_MAX_PATH_BYTES = 100
"""Bytes; systems allow a socket's path 107 or 103."""


def socket_folder(folder: Path) -> Path:
    """`folder`, or a link to it from a private place when its own path is too long for a socket."""
    if len(os.fsencode(folder / SOCKET)) <= _MAX_PATH_BYTES:
        return folder
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    link = _private_folder() / name
    if not link.is_symlink() or link.readlink() != folder:
        draft = link.with_name(f"{name}.{os.getpid()}")
        draft.symlink_to(folder)
        draft.replace(link)
    return link


def _private_folder() -> Path:
    """A folder for sockets: the same for every process of this user, and closed to all others."""
    folder = Path(tempfile.gettempdir()) / f"supaclaw-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OwnerMustAct(f"{folder} is open to others: remove it, or set SUPACLAW_DATA to a shorter path")
    return folder


_PID_FILE = "postmaster.pid"
_WRITTEN_WITHIN = 1.0
"""Seconds. A server makes its pid file and writes it in two steps."""
_SIGNALS: Mapping[str, int] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
"""https://www.postgresql.org/docs/current/server-shutdown.html"""


class Postmaster:
    """The one process of `folder` that all others of the server descend from. Its methods block."""

    def __init__(self, folder: Path, log: ServerLog) -> None:
        self._folder = folder
        self._log = log

    @property
    def is_alive(self) -> bool:
        """Whether any process of the server lives, be it ready or not."""
        try:
            lock = self._take_lock()
        except FileNotFoundError:
            return False
        if lock is None:
            return True
        os.close(lock)
        return False

    @property
    def says_ready(self) -> bool:
        """Whether the pid file says that the server is ready, perhaps long ago: it spares logins that cannot work yet.

        A file that is not of its making says nothing against a login; an empty one is of it until it is written.
        """
        path = self._folder / _PID_FILE
        try:
            said, age = read_regular(path), time.time() - path.stat().st_mtime
        except FileNotFoundError:
            return False
        except OSError:
            return True
        if not said:
            return abs(age) > _WRITTEN_WITHIN
        return said.rstrip().endswith(b"ready") or not said[:1].isdigit()

    def programs(self) -> Programs:
        """The programs, run as the cluster's owner; raises `OwnerMustAct` if we cannot be that user."""
        owner = self._folder.stat().st_uid
        if os.geteuid() not in {0, owner}:
            raise OwnerMustAct(f"{self._folder} belongs to user id {owner}: run as that user, or chown the data folder")
        if owner == 0:
            owner = service_uid()
            give(self._folder, owner)
        return find_programs(owner)

    def check_cut_off(self) -> bool:
        """Whether the server's socket is gone: only another start makes one. Moves a pipe as pid file aside."""
        clear_way(self._folder / _PID_FILE)  # the server ends when it finds none
        return self.says_ready and not (self._folder / SOCKETS / SOCKET).is_socket()

    def launch(self, programs: Programs, since: int | None) -> int | None:
        """Start the server unless one lives. `since` and the result: where in the log our last start begins.

        A start that is found dead raises `OwnerMustAct` with the server's own words, or `DiskFull`.
        """
        lock = self._take_lock()
        if lock is None:
            return since
        try:
            if since is not None:
                said, see = self._log.said(since), f" (see {self._log.path})"
                raise program_error("Postgres does not start", said, self._folder, see)
            self._clear(programs.uid)
            restore_settings(self._folder, programs.uid)
            since = self._log.size()
            self._spawn(programs, lock)
        finally:
            os.close(lock)
        return since

    def ask_to_stop(self, mode: Literal["fast", "immediate"]) -> str:
        """Signal the server and return at once with what went wrong, if anything did."""
        clear_way(self._folder / _PID_FILE)
        with opened(self._folder) as folder:
            where = reach(self._folder, folder)
            done = self.programs().run(
                "pg_ctl", "stop", "--no-wait", "--silent", "-m", mode, "-D", where, keep=[folder]
            )
        if done.returncode != 0:  # it finds the server by the pid file, which may be anything
            for process in self._servers():
                with suppress(ProcessLookupError):
                    os.kill(process, _SIGNALS[mode])
        return reason(done.stdout)

    def _servers(self) -> Iterator[int]:
        """Processes at work in the folder that are nobody's child there."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                if (process / "comm").read_text() == "postgres\n" and (process / "cwd").samefile(self._folder):
                    parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                    found[int(process.name)] = int(parent)
        return (process for process, parent in found.items() if parent not in found)

    def _take_lock(self) -> int | None:
        """A descriptor that holds the cluster's lock until it is closed; None while a server has it."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            return None
        return folder

    def _spawn(self, programs: Programs, lock: int) -> None:
        where = ["-D", reach(self._folder, lock), "-p", programs.path("postgres")]
        options = ["-o", buffer_options(self._folder, available_memory())]
        with self._log.open() as output:
            programs.run("pg_ctl", "start", "--no-wait", "--silent", *where, *options, keep=[lock], log=output)

    def _clear(self, owner: int) -> None:
        """Empty the folder of sockets and remove the pid file, which may be torn or name the pid of another process.

        The lock we hold proves that no server of ours lives; one that somebody started by hand works in the folder.
        """
        sockets, pid_file = self._folder / SOCKETS, self._folder / _PID_FILE
        for process in self._servers() if os.path.lexists(pid_file) else ():
            raise OwnerMustAct(f"another Postgres (pid {process}) runs on {self._folder}: stop it")
        for path in (sockets, pid_file):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        sockets.mkdir(mode=0o700)
        give(sockets, owner)
