"""Reads text in pages of bytes, so that a file of any size needs one page of memory."""

import codecs
import os
from dataclasses import dataclass

from gateway.workspace.paths import WorkspaceError, WorkspacePath


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a text file. `size` is the whole file's, in bytes; `next_offset` is None at its end."""

    text: str
    size: int
    next_offset: int | None


def read_page(file: int, path: WorkspacePath, offset: int, limit: int) -> Page:
    """Read about `limit` (≥ 8) bytes from `offset`, cut between characters; raises `WorkspaceError` if binary."""
    size = os.fstat(file).st_size
    raw = read_bytes(file, limit, offset)
    skipped = _tail_of_a_character(raw) if offset else 0
    end = offset + len(raw) >= size
    text, used = _decode(raw[skipped:], path, final=end)
    after = offset + skipped + used
    return Page(text, size, after if after < size and used else None)


def decode_text(raw: bytes, path: WorkspacePath) -> str:
    """Decode a whole file; raises `WorkspaceError` if it is binary."""
    return _decode(raw, path, final=True)[0]


def read_bytes(file: int, limit: int, offset: int = 0) -> bytes:
    """Read at most `limit` bytes from `offset`."""
    chunks: list[bytes] = []
    while limit > 0 and (chunk := os.pread(file, limit, offset)):
        chunks.append(chunk)
        offset += len(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


def _tail_of_a_character(raw: bytes) -> int:
    """The number of leading bytes of a character that starts before this page."""
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
