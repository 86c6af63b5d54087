"""Files on their way out of an archive, never through a link and never over what they have not written themselves."""

import os
from contextlib import suppress
from pathlib import Path

from gateway.app.archive.reading import Entry
from gateway.app.archive.writing import PIECE
from gateway.domain.errors import OwnerMustAct
from gateway.workspace.descent import open_folder

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def unpack(entry: Entry, root: Path, parts: tuple[str, ...]) -> None:
    """Put an entry to `parts` below `root`, in place of what an unfinished restore left there."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_folder(root, parts[:-1]) as folder:
            _put(entry, folder, parts[-1])
    except OSError as error:
        where = root.joinpath(*parts)
        raise OwnerMustAct(f"{where} cannot be written: {error.strerror}; mend that and restore again") from error


def _put(entry: Entry, folder: int, name: str) -> None:
    match entry.kind:
        case "folder":
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            _give_mode(folder, name, entry.mode | 0o700)
        case "link":
            _clear(folder, name)
            os.symlink(entry.target, name, dir_fd=folder)
        case "file":
            _clear(folder, name)
            with open(os.open(name, _NEW, 0o600, dir_fd=folder), "wb") as file:
                while piece := entry.content.read(PIECE):
                    file.write(piece)
                file.flush()
                os.fchmod(file.fileno(), entry.mode)
                os.utime(file.fileno(), (entry.mtime, entry.mtime))


def _give_mode(folder: int, name: str, mode: int) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _clear(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
