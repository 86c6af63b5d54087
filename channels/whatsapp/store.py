"""The channel's folder: the session, the linked account, and the spool of messages that aren't accepted yet."""

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
"""Servers in a JID: of people, of people with a hidden number, of groups, of WhatsApp's own bots."""

MAX_WAITING = 10_000
"""Messages in the spool; at this number Go waits, and WhatsApp keeps further ones."""

MIN_FREE_BYTES = 64 * 2**20
"""Free bytes that a session needs: a message whose keys can't be saved is acknowledged and lost."""


@dataclass(frozen=True, slots=True)
class LinkedAccount:
    """The account that this device is linked to; `device` is its number among the devices of the account."""

    number: str
    hidden: str = ""
    device: int = 0

    def are(self, jid: str) -> bool:
        """Whether a JID without a device is this account's."""
        return jid in {f"{self.number}@{PHONE}", f"{self.hidden}@{HIDDEN}"}


class Store:
    """The folder, private and locked: two programs with the same session would disconnect each other."""

    def __init__(self, folder: Path, room: int = MIN_FREE_BYTES) -> None:
        self._folder = folder
        self.room = room
        self._account = folder / "account.json"
        self._lock: int | None = None
        self.session = folder / "session.sqlite"
        self.spool = folder / "spool"
        self.timers = folder / "chats" / "timers.json"

    def open(self) -> None:
        """Lock the folder; raises `OwnerMustAct` if another living process has it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            os.close(lock)
            who = f"another program (pid {pid})"
            raise OwnerMustAct(f"{who} uses the WhatsApp session in {self._folder}; stop it first") from None
        written = os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)  # over the old one, in case the disk is full
        os.truncate(lock, written)
        self._lock = lock

    @property
    def has_room(self) -> bool:
        """Whether there is room to save the keys of messages."""
        return disk_usage(self._folder).free >= self.room

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remember(self, account: LinkedAccount) -> None:
        """Store the linked account."""
        if account != self.account():
            _write(self._account, json.dumps(asdict(account)).encode())

    def forget(self) -> None:
        """Delete the linked account."""
        self._account.unlink(missing_ok=True)

    def account(self) -> LinkedAccount | None:
        """The account of the last connection, None after a logout."""
        with suppress(FileNotFoundError, ValueError, TypeError):
            return LinkedAccount(**json.loads(self._account.read_text(encoding="utf-8")))
        return None

    def backup_files(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield names and readers of the files to back up, none without an account.

        The keys come first: every message that they have decrypted is in the spool, or accepted.
        """
        if self._account.exists() and self.session.exists():
            yield self.session.name, partial(_copy, self.session)
            yield self._account.name, self._account.read_bytes
            for event in sorted(self.spool.glob("*.event")):
                yield f"{self.spool.name}/{event.name}", event.read_bytes


class Timers:
    """The disappearing-message timer of each chat, as its newest message told: seconds, and since when (Unix time)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._timers: dict[str, tuple[int, int]] = {}
        with suppress(OSError, ValueError, TypeError, AttributeError):
            stored = json.loads(path.read_text(encoding="utf-8"))
            self._timers = {str(chat): (int(seconds), int(since)) for chat, (seconds, since) in stored.items()}

    def get(self, chat: str) -> tuple[int, int] | None:
        """The timer of a chat by its `Address.chat`; None: its messages stay."""
        return self._timers.get(chat)

    def note(self, chat: str, seconds: int, since: int) -> None:
        """Note the timer that a message came with, 0 seconds if none. One that can't be stored is kept in memory."""
        before = self._timers.pop(chat, None)
        if seconds > 0:
            self._timers[chat] = (seconds, since)
        if self._timers.get(chat) != before:
            with suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)  # `_write` needs a folder that nothing else writes to
                _write(self._path, json.dumps(self._timers).encode())


class Spool:
    """One file per message, in order of arrival. `put` runs in another thread than the rest, one call at a time.

    neonize acknowledges a message to WhatsApp before it passes it on, so from then on only the spool has it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._waiting = deque(sorted(folder.glob("*.event")))
        self._next = int(self._waiting[-1].stem) + 1 if self._waiting else 0
        self._lock = Lock()
        self.closed = Event()

    def put(self, event: bytes) -> None:
        """Store a message so that it survives a power cut; raises `OSError`, and may then be retried."""
        if len(self._waiting) >= MAX_WAITING and not self.closed.is_set():
            raise OSError(f"{MAX_WAITING} messages wait already")
        path = self._folder / f"{self._next:012}.event"
        _write(path, event)
        with self._lock:
            self._next += 1
            self._waiting.append(path)

    def head(self, most: int) -> Sequence[tuple[Path, bytes]]:
        """The oldest messages, with the paths to `drop` them by."""
        with self._lock:
            names = list(islice(self._waiting, most))
        return [(name, name.read_bytes()) for name in names]

    def drop(self, names: Sequence[Path]) -> None:
        """Delete accepted messages; `names` must be the oldest. Needs no lock, since `popleft` is atomic."""
        for name in names:
            name.unlink(missing_ok=True)
            self._waiting.popleft()


def _copy(session: Path) -> bytes:
    """A consistent copy of the session, by SQLite; raises `OwnerMustAct`.

    Not for the process that has it open: closing a second descriptor there would drop the locks of the first.
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
    """Write under another name first, so that a file with this name is always complete."""
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
