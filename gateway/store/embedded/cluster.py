"""Makes the embedded server's cluster and its passwords: closed to everyone without one from its first start on."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gateway.config.data.files import create_private, error_type, read_regular, sync_to_disk
from gateway.domain.errors import OwnerMustAct
from gateway.store.embedded.programs import find_programs, named_uid, program_error, service_uid

PASSWORD_FIX = "put the old files back, or restore a backup into another data folder"
SUPERUSER = "postgres"
ROLE = "supaclaw"
"""The role that the gateway works as."""
MEMBERS = "supaclaw_member"
"""The role of members' tools. The migrations say what it may do."""


def read_passwords(folder: Path, *, make: bool = False) -> Mapping[str, str]:
    """The passwords of `SUPERUSER`, `ROLE` and `MEMBERS` kept in `folder`; raises `OSError` for one that is gone.

    `make` makes it then, for a cluster that is about to be made: a new one would not fit one that is there. Only that
    of members is made at any time: a cluster of before has none.
    """
    return {
        SUPERUSER: _password(folder / "postgres.superuser", make=make),
        ROLE: _password(folder / "postgres.supaclaw", make=make),
        MEMBERS: _password(folder / "postgres.supaclaw_member", make=True),
    }


def _password(path: Path, *, make: bool) -> str:
    if make and not path.is_file():
        create_private(path, secrets.token_urlsafe(32).encode())
    password = read_regular(path, 100).decode("ascii", "replace").strip()
    if not password.isprintable() or not password.isascii() or not password:
        raise OwnerMustAct(f"{path} is damaged: {PASSWORD_FIX}")
    return password


DATABASE = "supaclaw"
SOCKETS = "socket"

_SETTINGS = Path(__file__).with_name("postgresql.conf")
_ACCESS = "local all all scram-sha-256\n"


CLUSTER, CLUSTER_COPY = "postgres", "postgres.before"
"""In the data folder: the cluster, and its copy from before an update."""


def has_cluster(data: Path) -> bool:
    """Whether a start finds one in the data folder."""
    return any((data / name).is_dir() for name in (CLUSTER, CLUSTER_COPY))


def ensure_cluster(path: Path, keys: Path) -> None:
    """Make the cluster at `path` if there is none, whole or not at all: it is made beside it and renamed. Blocks.

    An update that goes back deletes the cluster, and then its copy takes the place.
    """
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    passwords = read_passwords(keys, make=True)
    with opened(keys) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (copy := path.with_name(CLUSTER_COPY)).exists() and not path.exists():
            copy.rename(path)
        if not path.exists():
            _Draft(path, passwords, lock).make()


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A descriptor of `folder`, closed at the end."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def reach(folder: Path, descriptor: int) -> str:
    """How a child that keeps `descriptor` names `folder` even if it may not enter the folders above it."""
    return f"/proc/self/fd/{descriptor}" if Path("/proc/self/fd").exists() else str(folder)


def give(path: Path, uid: int) -> None:
    """Make `path` and all below it belong to `uid`; only root can, and only root needs to."""
    if os.geteuid() == 0:
        for folder, _, files in os.walk(path):
            for name in [folder, *(os.path.join(folder, file) for file in files)]:
                os.chown(name, uid, uid, follow_symlinks=False)


def restore_settings(folder: Path, uid: int) -> None:
    """Put back the settings that a power cut emptied: with those of Postgres, the server would be open to others."""
    for name, ours in (("postgresql.conf", _SETTINGS.read_bytes()), ("pg_hba.conf", _ACCESS.encode())):
        file = folder / name
        if not file.exists() or not file.read_bytes().strip(b"\0 \n"):
            file.write_bytes(ours)
            os.chown(file, uid, uid)


class _Draft:
    """A cluster in the making. It holds `lock` as long as one of its programs runs, even when we are killed."""

    def __init__(self, target: Path, passwords: Mapping[str, str], lock: int) -> None:
        self._target = target
        self._folder = target.with_name(f"{target.name}.new")
        self._passwords = passwords
        self._lock = lock
        self._programs = find_programs(named_uid(service_uid()))

    def make(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700)
        try:
            self._fill()
            self._publish()
        except OSError as error:
            raise error_type(error)(f"The database cannot be set up in {self._target.parent}: {error}") from error
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _fill(self) -> None:
        (self._folder / "password").write_text(self._passwords[SUPERUSER], encoding="ascii")
        give(self._folder, self._programs.uid)
        with opened(self._folder) as folder:
            where = reach(self._folder, folder)
            self._run("initdb", _initdb_arguments(where), folder)
            data = self._folder / "data"
            shutil.copyfile(_SETTINGS, data / "postgresql.conf")
            (data / "pg_hba.conf").write_text(_ACCESS, encoding="utf-8")
            self._sql(where, "postgres", _roles(self._passwords), folder)
            self._sql(
                where, DATABASE, ["create extension vector", "revoke create on schema public from public"], folder
            )
            (data / SOCKETS).mkdir(mode=0o700)
            self._run("initdb", ["--sync-only", f"--pgdata={where}/data"], folder)

    def _publish(self) -> None:
        data = self._folder / "data"
        give(data, service_uid())
        data.rename(self._target)
        sync_to_disk(self._target.parent)

    def _sql(self, where: str, database: str, statements: Sequence[str], folder: int) -> None:
        text = "".join(f"{statement};\n" for statement in statements)
        self._run("postgres", ["--single", "-D", f"{where}/data", "-c", "exit_on_error=on", database], folder, text)

    def _run(self, program: str, arguments: Sequence[str], folder: int, text: str = "") -> None:
        done = self._programs.run(program, *arguments, keep=[folder, self._lock], text=text)
        if done.returncode != 0:
            raise program_error(f"The database cannot be set up in {self._target.parent}", done.stdout, self._folder)


def _initdb_arguments(where: str) -> list[str]:
    return [
        f"--pgdata={where}/data",
        "--no-sync",
        f"--pwfile={where}/password",
        f"--username={SUPERUSER}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--data-checksums",
        "--set=scram_iterations=1",
        "--no-instructions",
    ]


def _roles(passwords: Mapping[str, str]) -> list[str]:
    return [
        f"create role {ROLE} login password '{passwords[ROLE]}'",
        f"create database {DATABASE} owner {ROLE}",
        f"revoke all on database {DATABASE}, postgres, template1 from public",
        *member_role(passwords[MEMBERS]),
    ]


def member_role(password: str) -> list[str]:
    """Statements for a superuser; also for a cluster of an older version, which lacks the role or its login."""
    return [
        f"do $$ begin create role {MEMBERS}; exception when duplicate_object then null; end $$",
        f"alter role {MEMBERS} login password '{password}'",
        f"grant {MEMBERS} to {ROLE}",
        f"grant connect on database {DATABASE} to {MEMBERS}",
    ]
