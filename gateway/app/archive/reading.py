"""Reading an archive, entry by entry and never trusting it: nothing in it decides how much memory or disk is used."""

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gateway.app.archive import manifest, names
from gateway.app.archive.manifest import MANIFEST, Kind, Manifest, Member
from gateway.app.archive.writing import PIECE, Hashing, Tar, link_digest
from gateway.domain.errors import OwnerMustAct

_LONGEST_HEADER = 1024 * 1024
_LONGEST_MANIFEST = 256 * 1024 * 1024
_KINDS: dict[bytes, Kind] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "link",
}


class Broken(Exception):
    """The archive is not as it was written; the text says how."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as it is read; its `content` is gone when the next one comes."""

    name: str
    kind: Kind
    mode: int
    mtime: float
    target: str
    content: Hashing

    def member(self) -> Member:
        """What it was, by its own bytes; reads what nobody has read yet."""
        if self.kind == "link":
            size, sha256 = link_digest(self.target)
        else:
            while self.content.read(PIECE):
                pass
            size, sha256 = self.content.size, self.content.sha256
        return Member(name=names.shown(self.name), kind=self.kind, size=size, sha256=sha256)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file at `path`, for reading; raises `OwnerMustAct` if there is none, or if it turns out to be no backup."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
        except OSError as error:
            raise OwnerMustAct(f"{path} cannot be read: {error.strerror}") from error
        with _blamed(path):
            yield file


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    try:
        yield
    except (Broken, tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise OwnerMustAct(f"{path} is no whole SupaClaw backup ({error}); use another copy of it") from error


def verify(file: BinaryIO) -> Manifest:
    """Read all of it and compare it with its manifest; raises `Broken` and what tarfile and gzip raise."""
    told: Manifest | None = None
    found: list[Member] = []
    places = names.Places()
    for entry in entries(file):
        if told is not None:
            raise Broken("something follows its manifest")
        if entry.name == MANIFEST:
            told = _manifest(entry)
        else:
            _check(entry, places)
            found.append(entry.member())
    if told is None:
        raise Broken("it has no manifest")
    _compare(told, found)
    return told


def entries(file: BinaryIO) -> Iterator[Entry]:
    """Every entry in order, from the beginning; after the last one the file must be over."""
    file.seek(0)
    with _headers_blamed(), gzip.GzipFile(fileobj=file, mode="rb") as plain:
        stream = _Forward(plain)
        archive = Tar(fileobj=stream, mode="r", encoding="utf-8", errors="surrogateescape")
        while (info := archive.next()) is not None:
            archive.forget()
            yield _entry(archive, info)
        while piece := stream.read(PIECE):
            if piece.strip(b"\0"):
                raise Broken("something follows its end")


@contextmanager
def _headers_blamed() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise Broken("a header in it cannot be read") from error


def _entry(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Entry:
    kind = _KINDS.get(info.type)
    if kind is None or info.sparse is not None:
        raise Broken(f"it holds {info.name!r}, which is no file, folder or link")
    content = archive.extractfile(info) if kind == "file" else None
    return Entry(info.name, kind, info.mode & 0o777, info.mtime, info.linkname, Hashing(content or io.BytesIO()))


def _check(entry: Entry, places: names.Places) -> None:
    known = names.allowed(entry.name, entry.kind) and places.take(entry.name, entry.kind)
    if not known or (entry.kind == "link" and not names.stays_inside(entry.name, entry.target)):
        raise Broken(f"it holds {entry.name[:200]!r}, which does not belong there")


def _manifest(entry: Entry) -> Manifest:
    raw = bytearray()
    while piece := entry.content.read(PIECE):
        raw += piece
        if len(raw) > _LONGEST_MANIFEST:
            raise Broken("its manifest is too long")
    try:
        return manifest.parse(bytes(raw))
    except ValueError as error:
        raise Broken(str(error)) from error


def _compare(told: Manifest, found: list[Member]) -> None:
    for member, other in zip(told.members, found, strict=False):
        if member != other:
            raise Broken(f"{member.name} is not as it was saved")
    if len(told.members) != len(found):
        raise Broken("entries are missing or were added")
    tables = [manifest.table_member(table.name) for table in told.tables]
    if tables != [member.name for member in found if member.name.startswith(f"{manifest.DATABASE}/")]:
        raise Broken("its tables are not those of its manifest")


class _Forward(io.BufferedIOBase):
    """A stream as tarfile wants it, that only goes forward and refuses to hold more than a header at once."""

    def __init__(self, source: gzip.GzipFile) -> None:
        super().__init__()
        self._source = source
        self._position = 0

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _LONGEST_HEADER:
            raise Broken("a header in it is too long")
        piece = self._source.read(size)
        self._position += len(piece)
        return piece

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        if whence != os.SEEK_SET or position < self._position:
            raise Broken("a header in it leads backwards")
        while self._position < position and self.read(min(PIECE, position - self._position)):
            pass
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
