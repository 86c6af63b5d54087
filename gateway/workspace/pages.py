"""Reading text by pages of bytes, so that a file of any size costs one page of memory."""

import codecs
import os
from dataclasses import dataclass

from gateway.workspace.paths import WorkspaceError, WorkspacePath


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a text file. `size` is the whole file in bytes; `next_offset` is None at its end."""

    text: str
    size: int
    next_offset: int | None


def read_page(file: int, path: WorkspacePath, offset: int, limit: int) -> Page:
    """About `limit` (≥ 8) bytes from `offset`, cut between characters; raises `WorkspaceError` for binary content."""
    size = os.fstat(file).st_size
    raw = _pread(file, offset, limit)
    skipped = _tail_of_a_character(raw) if offset else 0
    end = offset + len(raw) >= size
    text, used = _decode(raw[skipped:], path, final=end)
    after = offset + skipped + used
    return Page(text, size, after if after < size and used else None)


def decode_text(raw: bytes, path: WorkspacePath) -> str:
    """The text of a whole file; raises `WorkspaceError` for binary content."""
    return _decode(raw, path, final=True)[0]


def read_bytes(file: int, limit: int) -> bytes:
    """At most `limit` bytes from the start."""
    return _pread(file, 0, limit)


def _pread(file: int, offset: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    while limit > 0 and (chunk := os.pread(file, limit, offset)):
        chunks.append(chunk)
        offset += len(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


def _tail_of_a_character(raw: bytes) -> int:
    """How many leading bytes belong to a character that starts before this page."""
    return next((index for index, byte in enumerate(raw[:3]) if byte & 0xC0 != 0x80), min(3, len(raw)))


def _decode(raw: bytes, path: WorkspacePath, *, final: bool) -> tuple[str, int]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(raw, final=final)
    except UnicodeDecodeError as error:
        raise _binary(path) from error
    if "\0" in text:
        raise _binary(path)
    return text, len(raw) - len(decoder.getstate()[0])


def _binary(path: WorkspacePath) -> WorkspaceError:
    return WorkspaceError("binary", f"{path} is not UTF-8 text, so it cannot be read as text.")
