"""Writing an archive: a compressed tar, whole or not at all, that ends in its manifest."""

import gzip
import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Self

from gateway.app.archive.manifest import MANIFEST as MANIFEST_NAME
from gateway.app.archive.manifest import Kind, Manifest, Member
from gateway.app.archive.names import shown
from gateway.domain.errors import OwnerMustAct

PIECE = 512 * 1024
_IN_MEMORY = 4 * 1024 * 1024
_LEVEL = 4


class Tar(tarfile.TarFile):
    """A tar of any number of entries."""

    members: list[tarfile.TarInfo]

    def forget(self) -> None:
        """Let go of the entries so far, which tarfile would keep."""
        self.members.clear()


class Hashing(io.RawIOBase):
    """A stream that knows, at its end, what was read from it."""

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__()
        self._source = source
        self._digest = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes."""
        piece = self._source.read(size)
        self._digest.update(piece)
        self.size += len(piece)
        return piece

    @property
    def sha256(self) -> str:
        """The hash of what was read so far."""
        return self._digest.hexdigest()


class ArchiveWriter:
    """Adds entries one after another; `close` ends the file. Not for two threads at once."""

    def __init__(self, target: BinaryIO, scratch: Path) -> None:
        self._scratch = scratch
        self._gzip = gzip.GzipFile(filename="", mode="wb", fileobj=target, compresslevel=_LEVEL)
        self._tar = Tar(
            fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
        )
        self.members: list[Member] = []

    def spool(self) -> "tempfile.SpooledTemporaryFile[bytes]":
        """A place for what has to be complete before its size is known; beside the archive when it is large."""
        return tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(self._scratch))

    def add(self, name: str, content: IO[bytes], *, mode: int = 0o600, mtime: float = 0) -> None:
        """All of `content` as a file."""
        size = content.seek(0, os.SEEK_END)
        content.seek(0)
        info = self._info(name, tarfile.REGTYPE, mode, mtime)
        info.size = size
        hashing = Hashing(content)
        self._tar.addfile(info, hashing)
        self._note(name, "file", size, hashing.sha256)

    def add_folder(self, name: str, *, mode: int, mtime: float) -> None:
        """A folder; what is in it comes after it."""
        self._tar.addfile(self._info(name, tarfile.DIRTYPE, mode, mtime))
        self._note(name, "folder", 0, hashlib.sha256().hexdigest())

    def add_link(self, name: str, target: str, *, mtime: float) -> None:
        """A symbolic link, never what it leads to."""
        info = self._info(name, tarfile.SYMTYPE, 0o777, mtime)
        info.linkname = target
        self._tar.addfile(info)
        self._note(name, "link", *link_digest(target))

    def close(self, manifest: Manifest) -> None:
        """End the archive with what it says about itself."""
        text = manifest.model_dump_json(indent=1).encode()
        info = self._info(MANIFEST_NAME, tarfile.REGTYPE, 0o600, manifest.created.timestamp())
        info.size = len(text)
        self._tar.addfile(info, io.BytesIO(text))
        self._tar.close()
        self._gzip.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            with suppress(OSError, ValueError):
                self._gzip.close()

    def _info(self, name: str, kind: bytes, mode: int, mtime: float) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.mtime = kind, mode & 0o777, int(mtime)
        return info

    def _note(self, name: str, kind: Kind, size: int, sha256: str) -> None:
        self._tar.forget()
        self.members.append(Member(name=shown(name), kind=kind, size=size, sha256=sha256))


def link_digest(target: str) -> tuple[int, str]:
    """Size and hash of what a link says."""
    raw = os.fsencode(target)
    return len(raw), hashlib.sha256(raw).hexdigest()


@contextmanager
def appearing(path: Path) -> Iterator[BinaryIO]:
    """A file that is there under its name when it is complete and on disk; only its owner may read it."""
    try:
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise OwnerMustAct(f"{path.parent} cannot be written to: {error.strerror}; choose another place") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
