"""Reads text in pages of bytes, so that a file of any size needs one page of memory."""

import codecs
import hashlib
import os
from dataclasses import dataclass

from gateway.domain.errors import raising
from gateway.domain.principals import Label
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath

MOST = 1024**3
"""Bytes of a file that tools read; hashing them takes seconds."""

_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a file; `size` and `sha256` are those of the whole file, as it was when these were read."""

    data: bytes
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a text file. `size` and `sha256` are the whole file's; `next_offset` is None at its end."""

    text: str
    size: int
    next_offset: int | None
    sha256: str
    label: Label = Label.UNTRUSTED


def read_piece(file: int, limit: int, offset: int = 0, most: int = MOST) -> Piece:
    """At most `limit` bytes from `offset`. They are hashed as they are read: no change comes in between.

    Raises `WorkspaceError` for a file of more than `most` bytes.
    """
    digest, kept, at = hashlib.sha256(), [], 0
    if (size := os.fstat(file).st_size) > most:
        raise WorkspaceError("too_large", f"It has {size / 1e6:.0f} MB; at most {most / 1e6:.0f} MB are read.")
    while chunk := os.pread(file, _CHUNK, at):
        digest.update(chunk)
        kept.append(chunk[max(0, offset - at) : max(0, offset + limit - at)])
        at += len(chunk)
    return Piece(b"".join(kept), at, digest.hexdigest())


def page_of(piece: Piece, path: WorkspacePath, offset: int) -> Page:
    """The text of a piece (≥ 8 bytes) from `offset`, cut between characters; raises `WorkspaceError` if binary."""
    raw, size = piece.data, piece.size
    skipped = _tail_of_a_character(raw) if offset else 0
    end = offset + len(raw) >= size
    text, used = _decode(raw[skipped:], path, final=end)
    after = offset + skipped + used
    return Page(text, size, after if after < size and used else None, piece.sha256)


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
    with raising(_binary(path), UnicodeDecodeError):
        text = decoder.decode(raw, final=final)
    if "\0" in text:
        raise _binary(path)
    return text, len(raw) - len(decoder.getstate()[0])


def _binary(path: WorkspacePath) -> WorkspaceError:
    return WorkspaceError("binary", f"{path} is not UTF-8 text, so it cannot be read as text.")
