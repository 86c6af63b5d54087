"""Puts a file back whatever stands in its place: a link, a folder, a pipe, a parent that cannot be entered."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.workspace.atomic import new_file, replacing, temporary_name

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
REPLACED = ".replaced-"
"""In the new name of a folder that stood in a file's place, or of a link in a folder's."""


def put_back(root: Path, path: str, data: bytes, mode: int, mtime_ns: int) -> None:
    """Make the file anew and rename it into its place, for its inode may be linked elsewhere. Raises `OSError`."""
    *parents, name = path.split("/")
    with _entered(root, parents) as folder:
        _move_aside(folder, name, keeps=stat.S_ISREG)
        with replacing(folder, name) as draft:
            with new_file(folder, draft, mode) as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
            os.utime(draft, ns=(mtime_ns, mtime_ns), dir_fd=folder, follow_symlinks=False)


@contextmanager
def _entered(root: Path, parents: list[str]) -> Iterator[int]:
    """Open the folder of a file; one that is missing or something else is made, one that is closed is opened."""
    os.chmod(root, stat.S_IMODE(root.stat().st_mode) | stat.S_IRWXU)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            _move_aside(folder, part, keeps=stat.S_ISDIR)
            with suppress(FileExistsError):
                os.mkdir(part, 0o777, dir_fd=folder)
            status = os.stat(part, dir_fd=folder, follow_symlinks=False)
            if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(part, stat.S_IMODE(status.st_mode) | stat.S_IRWXU, dir_fd=folder)
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _move_aside(folder: int, name: str, *, keeps: Callable[[int], bool]) -> None:
    """Rename what isn't of the kind that belongs there: that takes no longer for a folder of a million files."""
    with suppress(FileNotFoundError):
        if not keeps(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rename(name, f"{name[:100]}{REPLACED}{temporary_name()[-8:]}", src_dir_fd=folder, dst_dir_fd=folder)
