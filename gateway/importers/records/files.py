"""Reading files of any size in bounded memory: as lines, as bytes, or as the objects of a JSON array, also in a ZIP."""

import codecs
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import IO
from zoneinfo import ZoneInfo

from pydantic import JsonValue

from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import OBJECT
from gateway.domain.memory.imports import Damaged, Passed
from gateway.domain.text.texts import one_line

MAX_LINE_CHARS = 1 << 20
"""The rest of a longer line is dropped."""
MAX_EXPANSION, FREE_EXPANSION = 100, 64 << 20
"""A member of a ZIP may expand to this many times its size, and to this many bytes in any case."""
HEAD_BYTES = 64 << 10
MAX_DEPTH = 3
CHUNK_BYTES = 256 << 10

ReadChunk = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end, counted from 1; `cut` if it was longer than `MAX_LINE_CHARS`."""

    number: int
    text: str
    cut: bool


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads files for the sources; `zone` is for times that name none, `advance` is called with the bytes read."""

    zone: ZoneInfo
    advance: Callable[[int], None] | None = None
    own: frozenset[str] = frozenset()
    """The identities of the person whose data it is, such as "telegram:123"."""
    seal: Callable[[str], str] = lambda _text: ""
    """The MAC of a line of a passport, by this gateway's key."""
    vouched: bool = False
    """Whether the person takes a passport that this gateway has not sealed as known."""
    read: Collection[str] = ()
    """Patterns of the files in a folder that its sources read."""
    counted: set[str] = field(default_factory=set)
    """The files that were counted as left out."""

    def left_out(self, name: str) -> Iterator[Passed]:
        """Yield once that no source reads a file of a folder or ZIP: by name if it may hold words, else by its kind."""
        path = PurePath(name)
        if name not in self.counted and not any(map(path.match, self.read)):
            self.counted.add(name)
            words = path.suffix in {".json", ".html"}
            yield Passed(one_line(path.name, 60) if words else f"{path.suffix or 'other'} files")

    def lines(self, path: Path) -> Iterator[Line]:
        """Yield the lines of a text file in UTF-8, UTF-16 with a mark, or line by line in Windows-1252."""
        yield from text_lines(self._file(path), _encoding(path))

    @contextmanager
    def open_chunks(self, path: Path) -> Iterator[list[tuple[str, ReadChunk]]]:
        """Open a file, or all files in a folder or ZIP, as their names and functions that read on."""
        if path.is_dir():
            yield [(str(each.relative_to(path)), self._file(each)) for each in files_below(path)]
        elif zipfile.is_zipfile(path):
            with _translate_errors(path), zipfile.ZipFile(path) as archive:
                members = [each for each in archive.infolist() if not each.is_dir()]
                yield [(each.filename, self._member(path, archive, each)) for each in members]
        else:
            yield [(path.name, self._file(path))]

    def _file(self, path: Path) -> ReadChunk:
        return self._reading(path, partial(io.FileIO, path))

    def _member(self, path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> ReadChunk:
        share = member.compress_size / max(1, member.file_size)
        return self._reading(path, partial(_open_member, archive, member), share)

    def _reading(self, path: Path, open_file: Callable[[], IO[bytes]], share: float = 1.0) -> ReadChunk:
        """A function that reads on, and reports this share of what it has read."""

        def chunks() -> Iterator[bytes]:
            with _translate_errors(path), open_file() as file:
                while chunk := file.read(CHUNK_BYTES):
                    if self.advance:
                        self.advance(int(len(chunk) * share))
                    yield chunk

        return partial(next, chunks(), b"")


def _open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    """Open a file in a ZIP, which is read to its stated size at most."""
    if member.file_size > FREE_EXPANSION + MAX_EXPANSION * member.compress_size:
        raise OwnerMustAct(f"{member.filename} expands to more than {MAX_EXPANSION} times its size; unpack it")
    return archive.open(member)


def read_head(path: Path) -> bytes:
    """The beginning of a file; empty if it can't be read."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(HEAD_BYTES)
    return b""


def total_bytes(path: Path) -> int:
    """The size of a file, or of all files below a folder."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(path) for name in names)


def files_below(folder: Path) -> list[Path]:
    """The files of an unpacked export: down to `MAX_DEPTH` levels, without hidden ones."""
    found = (each for depth in range(MAX_DEPTH) for each in folder.glob("*/" * depth + "*"))
    return sorted(each for each in found if each.is_file() and not each.name.startswith("."))


def text_lines(read: ReadChunk, encoding: str = "utf-8-sig") -> Iterator[Line]:
    """Yield the lines of a text, which `read` returns in pieces; a line that isn't UTF-8 is Windows-1252."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("surrogateescape"), translate=True)
    number, rest, ended = 0, "", False
    while not ended:
        ended = not (chunk := read())
        *lines, rest = (rest + decoder.decode(chunk, ended)).split("\n")
        rest = rest[: MAX_LINE_CHARS + 1]
        for text in [*lines, rest] if ended and rest else lines:
            number += 1
            yield Line(number, _as_unicode(text[:MAX_LINE_CHARS]), cut=len(text) > MAX_LINE_CHARS)


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OwnerMustAct(f"{path} cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise OwnerMustAct(f"{path} is a damaged ZIP ({error}); download it again, or unpack it") from error
    except RuntimeError as error:
        raise OwnerMustAct(f"{path} cannot be unpacked here ({error}); unpack it and import the folder") from error


def _encoding(path: Path) -> str:
    first = read_head(path)
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in first:
        raise OwnerMustAct(f"{path} is not a text file; name the Markdown file, or another source")
    return "utf-8-sig"


def _as_unicode(text: str) -> str:
    """The text, decoded as Windows-1252 if it isn't UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return text


MAX_OBJECT_BYTES = 32 << 20

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[{}\[\]]', re.DOTALL)
"""A bracket, or a string, which has no end yet if its group is empty."""
_FIRST_KEY = re.compile(rb'\{\s*("[^"\\]{1,60}")')


@dataclass(frozen=True, slots=True)
class ArrayItem:
    """An object of the array, counted from 1, and the line on which it begins."""

    number: int
    line: int
    value: dict[str, JsonValue]


def array_items(name: str, read: ReadChunk, into: re.Pattern[bytes] | None = None) -> Iterator[ArrayItem | Damaged]:
    """Yield the objects of an array, which `read` returns in pieces, and b"" at its end.

    After a damaged object it continues with the next one that begins with the same key as the first. Of an object whose
    beginning matches `into`, that beginning is yielded, completed by "]}", and then the objects in it.
    """
    window = _Window(read)
    first_key: bytes | None = None
    number = 0
    while window.seek(b"{"):
        number += 1
        if into and (begins := window.beginning(into)):
            with suppress(ValueError):
                yield ArrayItem(number, window.line, OBJECT.validate_json(begins + b"]}"))
            window.drop(len(begins))
            continue
        line, end, value = window.line, window.end_of_object(), None
        with suppress(ValueError, RecursionError):
            value = OBJECT.validate_python(json.loads(bytes(window.data[: end or 0])))
        if value is not None and end:
            first_key = first_key or _key(window.data)
            yield ArrayItem(number, line, value)
            window.drop(end)
            continue
        yield Damaged(f"{name}:{line}", _damage(number, end, window))
        window.resume(first_key or _key(window.data), end)


class _Window:
    """The part of the text that is in memory, from the beginning of an object."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self.data = bytearray()
        self.line = 1
        self.ended = False
        self._read = read

    def fill(self, least: int = 1) -> bool:
        """Read at least so many bytes more; returns False at the end."""
        before = len(self.data)
        while len(self.data) < before + least and not self.ended:
            self.data += (chunk := self._read())
            self.ended = not chunk
        return len(self.data) > before

    def drop(self, end: int) -> None:
        """Skip this many bytes."""
        self.line += self.data.count(b"\n", 0, end)
        del self.data[:end]

    def seek(self, mark: bytes) -> bool:
        """Skip to the mark; returns False if there is none."""
        while (at := self.data.find(mark)) < 0:
            self.drop(len(self.data))
            if not self.fill():
                return False
        self.drop(at)
        return True

    def beginning(self, pattern: re.Pattern[bytes]) -> bytes:
        """The beginning of the object if it matches, else nothing."""
        while len(self.data) < HEAD_BYTES and self.fill():
            pass
        found = pattern.match(self.data, 0, HEAD_BYTES)
        return found[0] if found else b""

    def end_of_object(self) -> int | None:
        """The length of the object at the beginning; None if it has no end, or is too large."""
        depth, at = 0, 0
        while True:
            found = _TOKEN.search(self.data, at)
            if found is None or found[1] == b"":
                at = found.start() if found else len(self.data)
                # As much again, since a string is searched from its beginning.
                if len(self.data) > MAX_OBJECT_BYTES or not self.fill(max(1, len(self.data) - at)):
                    return None
                continue
            at = found.end()
            if found[1] is None:
                depth += 1 if found[0] in b"{[" else -1
                if depth == 0:
                    return at

    def resume(self, key: bytes | None, end: int | None) -> None:
        """Skip a damaged object."""
        begins = re.search(rb"\{\s*" + re.escape(key), self.data[1 : end or None]) if key else None
        self.drop(1 + begins.start() if begins else end or len(self.data))


def _key(data: bytearray) -> bytes | None:
    found = _FIRST_KEY.match(data)
    return found[1] if found else None


def _damage(number: int, end: int | None, window: _Window) -> str:
    if end:
        return f"item {number} is not valid JSON; skipped"
    if window.ended:
        return f"item {number} has no end: the file is incomplete"
    return f"item {number} is larger than {MAX_OBJECT_BYTES >> 20} MiB; skipped"
