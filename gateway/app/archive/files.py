"""Files on their way into an archive: a folder as it is, its links not followed, its pipes and sockets left alone."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from gateway.app.archive.names import allowed, stays_inside
from gateway.app.archive.writing import PIECE, ArchiveWriter
from gateway.domain.errors import OwnerMustAct
from gateway.workspace.atomic import TEMPORARY

Say = Callable[[str], None]
"""Told what is being done, for whoever waits."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def add_tree(writer: ArchiveWriter, root: Path, name: str, say: Say) -> int:
    """Add all below `root` as `name/…`; returns how much was skipped: what is no file, and links that lead out.

    Somebody may write below it meanwhile: a file is taken as it is when its turn comes, and one that is gone is gone.
    """
    tree = _Tree(writer)
    if root.is_dir():
        for place, folders, files, descriptor in os.fwalk(root, onerror=_unreadable):
            inside = "/".join((name, *Path(place).relative_to(root).parts))
            folders[:] = [folder for folder in sorted(folders) if tree.add(descriptor, inside, folder)]
            for file in sorted(files):
                if not file.startswith(TEMPORARY):
                    tree.add(descriptor, inside, file)
            say(f"{name}: {tree.added} entries")
    return tree.skipped


def add_file(writer: ArchiveWriter, path: Path, name: str) -> None:
    """One file; raises `OwnerMustAct` if it cannot be read."""
    try:
        with open(os.open(path, _FILE), "rb") as file:
            _copy(writer, name, file.fileno())
    except PermissionError as error:
        raise _cannot(str(path), error) from error


class _Tree:
    def __init__(self, writer: ArchiveWriter) -> None:
        self._writer = writer
        self.added = 0
        self.skipped = 0

    def add(self, folder: int, inside: str, entry: str) -> bool:
        """Add one entry of an open folder; whether it is a folder to go into."""
        name = f"{inside}/{entry}"
        try:
            status = os.stat(entry, dir_fd=folder, follow_symlinks=False)
            taken = self._add(folder, entry, name, status)
        except FileNotFoundError:
            return False
        except PermissionError as error:
            raise _cannot(name, error) from error
        self.added += taken
        self.skipped += not taken
        return taken and stat.S_ISDIR(status.st_mode)

    def _add(self, folder: int, entry: str, name: str, status: os.stat_result) -> bool:
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(entry, dir_fd=folder)
            if not (allowed(name, "link") and stays_inside(name, target)):
                return False
            self._writer.add_link(name, target, mtime=status.st_mtime)
        elif stat.S_ISDIR(status.st_mode) and allowed(name, "folder"):
            self._writer.add_folder(name, mode=status.st_mode, mtime=status.st_mtime)
        elif stat.S_ISREG(status.st_mode) and allowed(name, "file"):
            with open(os.open(entry, _FILE, dir_fd=folder), "rb") as file:
                _copy(self._writer, name, file.fileno())
        else:
            return False
        return True


def _copy(writer: ArchiveWriter, name: str, source: int) -> None:
    """As long as it was when it was opened: one that is being written to could have no end."""
    status = os.fstat(source)
    left = status.st_size
    with writer.spool() as spool:
        while left and (piece := os.read(source, min(PIECE, left))):
            spool.write(piece)
            left -= len(piece)
        writer.add(name, spool, mode=status.st_mode, mtime=status.st_mtime)


def _unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise _cannot(str(error.filename), error)


def _cannot(what: str, error: OSError) -> OwnerMustAct:
    return OwnerMustAct(f"{what} cannot be backed up: {error.strerror}; make it readable for the gateway's user")
