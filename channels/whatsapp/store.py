"""What lies in the channel's folder: the session, whose it is, and what arrived and was not accepted yet."""

import fcntl
import json
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from shutil import disk_usage
from threading import Event, Lock

from gateway.domain.errors import OwnerMustAct

PHONE, HIDDEN, GROUP, BOT = "s.whatsapp.net", "lid", "g.us", "bot"
"""The servers in a JID: of a person, of a person who hides the number, of a group, of WhatsApp's own bots."""

MAX_WAITING = 10_000
"""Waiting messages from which on Go has to wait too: then WhatsApp keeps what follows."""

MIN_FREE_BYTES = 64 * 2**20
"""Free bytes without which there is no session: a message whose keys cannot be saved is acknowledged and gone."""


@dataclass(frozen=True, slots=True)
class LinkedAccount:
    """The account this device is linked to; `device` is our own number among its devices."""

    number: str
    hidden: str = ""
    device: int = 0

    def are(self, jid: str) -> bool:
        """Whether a JID without a device means this account."""
        return jid in {f"{self.number}@{PHONE}", f"{self.hidden}@{HIDDEN}"}


class Store:
    """The folder, only ours to read; two programs with the same session would throw each other out."""

    def __init__(self, folder: Path, room: int = MIN_FREE_BYTES) -> None:
        self._folder = folder
        self.room = room
        self._account = folder / "account.json"
        self._lock: int | None = None
        self.session = folder / "session.sqlite"
        self.spool = folder / "spool"

    def open(self) -> None:
        """Take the folder; raises `OwnerMustAct` when another process has it. A dead process has nothing."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            os.close(lock)
            raise OwnerMustAct(
                f"another program (pid {pid}) uses the WhatsApp session in {self._folder}; stop it first"
            ) from None
        written = os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)  # in its old place, if the disk is full
        os.truncate(lock, written)
        self._lock = lock

    @property
    def has_room(self) -> bool:
        """Whether the keys of messages can be saved."""
        return disk_usage(self._folder).free >= self.room

    def close(self) -> None:
        """Leave the folder to others."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remember(self, us: LinkedAccount) -> None:
        """Keep which account we are linked to."""
        if us != self.account():
            _write(self._account, json.dumps(asdict(us)).encode())

    def forget(self) -> None:
        """There is no account any more."""
        self._account.unlink(missing_ok=True)

    def account(self) -> LinkedAccount | None:
        """The account of the last connection, None after a logout."""
        with suppress(FileNotFoundError, ValueError, TypeError):
            return LinkedAccount(**json.loads(self._account.read_text(encoding="utf-8")))
        return None

    def backup_files(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Nothing without an account. The keys come first: what they have decrypted is in the spool or accepted."""
        if self._account.exists() and self.session.exists():
            yield self.session.name, partial(_copy, self.session)
            yield self._account.name, self._account.read_bytes
            for event in sorted(self.spool.glob("*.event")):
                yield f"{self.spool.name}/{event.name}", event.read_bytes


class Spool:
    """One file per message, in the order they came; `put` is for another thread than the rest.

    WhatsApp gets its acknowledgement from neonize before we hear of a message, and there is no way to hold that back:
    from then on nobody else has it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._waiting = deque(sorted(folder.glob("*.event")))
        self._next = int(self._waiting[-1].stem) + 1 if self._waiting else 0
        self._lock = Lock()
        self.closed = Event()

    def put(self, event: bytes) -> None:
        """Returns once it would survive a power cut; raises `OSError`, and may then be tried again."""
        if len(self._waiting) >= MAX_WAITING and not self.closed.is_set():
            raise OSError(f"{MAX_WAITING} messages wait already")
        path = self._folder / f"{self._next:012}.event"
        _write(path, event)
        with self._lock:
            self._next += 1
            self._waiting.append(path)

    def head(self, most: int) -> Sequence[tuple[Path, bytes]]:
        """The oldest messages, and the names to `drop` them by."""
        with self._lock:
            names = list(islice(self._waiting, most))
        return [(name, name.read_bytes()) for name in names]

    def drop(self, names: Sequence[Path]) -> None:
        """They were accepted; `names` are the oldest."""
        for name in names:
            name.unlink(missing_ok=True)
            self._waiting.popleft()


def _copy(session: Path) -> bytes:
    """The session as it was at one instant, by SQLite's own means; raises `OwnerMustAct`.

    Not for the process that has it open: to close a second descriptor there would drop the locks of the first.
    """
    where = f"{session.absolute().as_uri()}?mode=rw"
    try:
        with closing(sqlite3.connect(where, uri=True)) as source, closing(sqlite3.connect(":memory:")) as copy:
            source.backup(copy)
            return copy.serialize()
    except sqlite3.Error as error:
        raise OwnerMustAct(
            f"{session} cannot be copied ({error}): link WhatsApp again, or back up without secrets"
        ) from error


def _write(path: Path, data: bytes) -> None:
    """Under another name first, so that what has this name is whole."""
    beside = path.with_name("torn")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
