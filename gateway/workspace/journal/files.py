"""The journal on disk, one root a principal, and its index of closed conversations.

What touches files blocks, and follows no link below a root.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.workspace.files.access import READ_FLAGS, open_file, open_folder, replace_file
from gateway.workspace.files.pages import read_bytes
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath

SESSIONS = "sessions"
INDEX = "memory/INDEX.md"
SECOND = timedelta(seconds=1)

_OPEN = f"{SESSIONS}/%Y-%m-%d/%H-%M-%S.md"
_FILED = "memory/%Y%m%d%H%M%S.md"
_HEARTBEATS = f"{SESSIONS}/heartbeat/"
_IS_OPEN = re.compile(SESSIONS + r"/\d{4}-\d{2}-\d{2}/\d{2}-\d{2}-\d{2}\.md")
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = _APPEND | os.O_CREAT | os.O_EXCL
_NO_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.ENXIO})
MAX_BYTES = 256 * 1024**2

Version = tuple[int, int, int, int]
"""Which file it is, how long, when it was written and when changed at all: whether it is as it was left."""
Versions = tuple[Version, Version]
"""The states of a file before a change and after it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A journal file, by its path below the file root of its principal."""

    root: Path
    path: str

    @property
    def parts(self) -> WorkspacePath:
        """The path as the descent takes it."""
        return WorkspacePath(tuple(self.path.split("/")))


def filed_path(at: datetime) -> str:
    """Where the file of a closed conversation lies."""
    return at.astimezone(UTC).strftime(_FILED)


def run_path(opened: datetime, id: int) -> str:
    """Where the file of a closed run that nobody waited for lies."""
    return f"memory/runs/{opened.astimezone(UTC):%Y-%m}/{id}.md"


def heartbeat_paths(at: datetime) -> Iterator[str]:
    """Where a heartbeat's file lies and stays: by its minute, or by its second if the minute has one already."""
    yield at.astimezone(UTC).strftime(f"{_HEARTBEATS}%Y-%m-%d/%H-%M.md")
    yield at.astimezone(UTC).strftime(f"{_HEARTBEATS}%Y-%m-%d/%H-%M-%S.md")


def stays(path: str) -> bool:
    """Whether a file is not moved when it is closed."""
    return path.startswith(_HEARTBEATS)


def began(path: str) -> datetime:
    """The second that an open or a filed path names."""
    return datetime.strptime(path, _OPEN if path.startswith(f"{SESSIONS}/") else _FILED).replace(tzinfo=UTC)


def create(root: Path, at: datetime) -> Place:
    """A new, empty file under the first free second of UTC from `at` on."""
    second = at.astimezone(UTC).replace(microsecond=0)
    while exists(Place(root, filed_path(second))) or not make(place := Place(root, second.strftime(_OPEN))):
        second += SECOND
    return place


def make(place: Place) -> bool:
    """An empty file, and the folders that lead to it; False where one is already, and stays."""
    place.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_folder(place.root, place.parts.parents, create=0o700) as folder, suppress(FileExistsError):
        os.close(os.open(place.parts.name, _NEW, 0o600, dir_fd=folder))
        return True
    return False


def append(place: Place, data: bytes) -> Versions:
    """Write at the end of a file that must be there; what cannot be written whole is taken back.

    Returns what it was before and what it is after.
    """
    with _opened(place, _APPEND) as file:
        before, left = _version(os.fstat(file)), memoryview(data)
        try:
            while left:
                left = left[os.write(file, left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, before[1])
            raise
        return before, _version(os.fstat(file))


def read(place: Place) -> tuple[bytes | None, Version | None]:
    """The whole file, and which version that is; None when there is none."""
    try:
        with _opened(place) as file:
            before = _version(os.fstat(file))  # what is written while it is read makes it another
            if before[1] > MAX_BYTES:
                raise WorkspaceError("too_large", f"{place.path} is larger than any journal.")
            return read_bytes(file, MAX_BYTES), before
    except FileNotFoundError:
        return None, None


def extend(place: Place, data: bytes, left: Version | None) -> Version | None:
    """Write at the end of a file that is as it was left, on disk when it returns; None if it is not."""
    with suppress(FileNotFoundError):
        if version(place) == left:
            _, after = append(place, data)
            sync(place)
            return after
    return None


def replace(place: Place, data: bytes) -> Version:
    """Put `data` in the file's place; on disk, its name too, when it returns."""
    make(place)
    with open_folder(place.root, place.parts.parents) as folder:
        replace_file(folder, place.parts, data)
    _sync_folders(place)
    return version(place)


def sync(place: Place) -> None:
    """Bring the file and the folders that lead to it to disk."""
    with _opened(place) as file:
        os.fsync(file)
    _sync_folders(place)


def remove(place: Place) -> None:
    """Delete the file, and its day's folder if that is empty."""
    folders = place.parts.parents
    with suppress(FileNotFoundError), open_folder(place.root, folders) as folder:
        os.unlink(place.parts.name, dir_fd=folder)
        os.fsync(folder)
    with suppress(OSError), open_folder(place.root, folders[:-1]) as above:
        os.rmdir(folders[-1], dir_fd=above)


def sessions(root: Path) -> Iterator[tuple[Place, Version]]:
    """The session files below a root, and which version each is; nothing is opened."""
    with suppress(FileNotFoundError), open_folder(root, (SESSIONS,)) as top:
        for day, below, names, folder in os.fwalk(".", dir_fd=top):
            # What else is kept here is no conversation.
            below[:] = [name for name in below if name[:1].isdigit()] if day == "." else []
            for name in names:
                path = f"{SESSIONS}/{day[2:]}/{name}"
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if _IS_OPEN.fullmatch(path) and stat.S_ISREG(status.st_mode):
                    yield Place(root, path), _version(status)


def version(place: Place) -> Version:
    """Which version the file is that must be there."""
    with _opened(place) as file:
        return _version(os.fstat(file))


def _version(status: os.stat_result) -> Version:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@contextmanager
def _opened(place: Place, flags: int = READ_FLAGS) -> Iterator[int]:
    """The file. What is in its place and is none counts as gone: it is renamed to `<name>.aside`."""
    try:
        with open_file(place.root, place.parts, flags) as file:
            yield file
    except (OSError, WorkspaceError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_FILE:
            raise
        with open_folder(place.root, place.parts.parents) as folder:
            os.rename(place.parts.name, f"{place.parts.name}.aside", src_dir_fd=folder, dst_dir_fd=folder)
        raise FileNotFoundError(errno.ENOENT, "moved aside", place.path) from error


def exists(place: Place) -> bool:
    """Whether there is something under its name, as far as one can see."""
    with suppress(OSError), open_folder(place.root, place.parts.parents) as folder:
        os.stat(place.parts.name, dir_fd=folder, follow_symlinks=False)
        return True
    return False


def _sync_folders(place: Place) -> None:
    folders = place.parts.parents
    for depth in range(len(folders) + 1):
        with open_folder(place.root, folders[:depth]) as folder:
            os.fsync(folder)


MAX_SUMMARY_LINE = 160


@dataclass(frozen=True, slots=True)
class IndexLine:
    """One filed conversation; `at` is the second that names its file."""

    at: datetime
    channel: str
    summary: str


def summarise(asked: str, answered: str, messages: int) -> str:
    """One line for the first question, one for the last answer; the same for the same conversation."""
    if not messages:
        return "Nothing was said."
    question = f"{_clipped(asked) or 'No question'} ({messages} message{'s' * (messages != 1)})"
    return f"{question}\n→ {_clipped(answered)}" if answered.strip() else question


def render_index(lines: Sequence[IndexLine]) -> str:
    """`memory/INDEX.md`, the newest last; the links lead to files in the same folder."""
    listed = "".join(map(render_line, sorted(lines, key=lambda line: line.at)))
    return f"# Conversations\n\nWhat was talked about, the newest last.\n\n{listed}"


def render_line(line: IndexLine) -> str:
    """One conversation, to be added at the end."""
    first, *rest = [_inert(text) for text in line.summary.splitlines() if text.strip()] or ["No summary."]
    channel = f" · {_inert(line.channel)}" if line.channel else ""
    more = "".join(f"  {text}\n" for text in rest[:1])
    return f"- [{line.at:%Y-%m-%d %H:%M}]({line.at:%Y%m%d%H%M%S}.md){channel} · {first}\n{more}"


def _clipped(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= MAX_SUMMARY_LINE else f"{words[: MAX_SUMMARY_LINE - 1].rstrip()}…"


def _inert(text: str) -> str:
    """Words of a conversation as words: no markup of theirs works in the list."""
    words = re.sub(r"([\\`*_\[\]<>#])", r"\\\1", " ".join(text.split()))
    return re.sub(r"^(\d*)([-+.)])", r"\1\\\2", words)
