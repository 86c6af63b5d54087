"""Writes an archive: a compressed tar that ends with its manifest. The file appears only when it is complete."""

import os
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO
from uuid import uuid4

from gateway.app.storage.manifest import Member, Tar, stays_inside
from gateway.config.data.files import error_type, sync_to_disk
from gateway.workspace.files.access import TEMPORARY_PREFIX
from gateway.workspace.files.disk import mostly_holes
from gateway.workspace.files.paths import MAX_LEVELS

_LEVEL = 4
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ArchiveWriter:
    """Adds entries to a tar, one after another. Not thread-safe."""

    def __init__(self, tar: Tar, scratch: Path) -> None:
        self._tar = tar
        self._scratch = scratch
        self.members: list[Member] = []
        self.clean: Callable[[str], str] | None = None
        """Removes live secrets from the entries."""
        self.replaced = 0
        """The number of lines that held a secret."""
        self.skipped = 0
        """The number of skipped entries.

        Skipped are pipes, sockets, devices, sparse files, paths that are too deep, and links that leave their folder.
        """

    def spool(self) -> BinaryIO:
        """A temporary file beside the archive, for content whose size is known only at its end."""
        return tempfile.TemporaryFile(dir=self._scratch)

    def add(self, name: str, content: IO[bytes]) -> None:
        """Add a file."""
        info = tarfile.TarInfo(name)
        info.mode, info.mtime = 0o600, int(time.time())
        self._put(info, content)

    def add_tree(self, root: Path, name: str, without: tuple[str, ...] = (TEMPORARY_PREFIX,)) -> None:
        """Add everything below `root` as `name/…`, links as links, except names that begin like one of `without`.

        Other processes may write there meanwhile: each file is added as it is at that moment, a deleted file is left
        out.
        """
        if not root.is_dir():
            return
        root = root.resolve()
        for place, folders, files, descriptor in os.fwalk(root, onerror=_unless_gone):
            inside = "/".join((name, *Path(place).relative_to(root).parts))
            folders.sort()
            if inside.count("/") > MAX_LEVELS:
                self.skipped += len(folders)
                folders.clear()
            for entry in sorted(folders + files):
                if not entry.startswith(without):
                    with suppress(FileNotFoundError):
                        self._add_entry(descriptor, entry, f"{inside}/{entry}")

    def _add_entry(self, folder: int, entry: str, name: str) -> None:
        status = os.stat(entry, dir_fd=folder, follow_symlinks=False)
        info = tarfile.TarInfo(name)
        info.mode, info.mtime = status.st_mode & 0o777, int(status.st_mtime)
        if stat.S_ISREG(status.st_mode):
            with open(os.open(entry, _FILE, dir_fd=folder), "rb") as file, self.spool() as spool:
                if mostly_holes(file.fileno(), os.fstat(file.fileno())):
                    self.skipped += 1
                    return
                shutil.copyfileobj(file, spool)
                self._put(info, spool)
            return
        if stat.S_ISLNK(status.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(entry, dir_fd=folder)
        elif stat.S_ISDIR(status.st_mode):
            info.type = tarfile.DIRTYPE
        if info.isreg() or (info.issym() and not stays_inside(name, info.linkname)):
            self.skipped += 1
        else:
            self._put(info, None)

    def _cleaned(self, content: IO[bytes], clean: Callable[[str], str]) -> IO[bytes]:
        cleaned = self.spool()
        for line in content:
            text = line.decode("latin-1")  # latin-1 maps each byte to one character
            self.replaced += (new := clean(text)) != text
            cleaned.write(new.encode("latin-1"))
        return cleaned

    def _put(self, info: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        if content is not None:
            content.seek(0)
            content = self._cleaned(content, self.clean) if self.clean else content
            info.size = content.seek(0, os.SEEK_END)
            content.seek(0)
        self.members.append(Member.of(info, content))
        if content is not None:
            content.seek(0)
        self._tar.addfile(info, content)
        self._tar.members.clear()


@contextmanager
def archive_at(path: Path) -> Iterator[ArchiveWriter]:
    """Write an archive that appears under its name when it is complete and on disk; only its owner may read it.

    Raises `OwnerMustAct` or `DiskFull` if the archive can't be written or an entry can't be added.
    """
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with open(os.open(draft, _NEW, 0o600), "wb") as file:
            with Tar.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT, compresslevel=_LEVEL) as tar:
                yield ArchiveWriter(tar, path.parent)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_to_disk(path.parent)
    except OSError as error:
        what = ": ".join(str(part) for part in (error.strerror, error.filename) if part)
        raise error_type(error)(f"the backup to {path} failed ({what}); nothing was written") from error
    finally:
        with suppress(OSError):
            os.unlink(draft)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
