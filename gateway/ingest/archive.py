"""Zip files: lists their contents without unpacking them, and checks those that are documents."""

import gzip
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ingest.encoding import OF_DOS, Decoded, decode, detected
from gateway.ingest.output import LOCKED, MAX_ENTRIES, MAX_FILES, MAX_RATIO, MAX_UNPACKED_BYTES, Output, Unreadable

if TYPE_CHECKING:
    from lxml.etree import _Element

_LOCKED, _UTF_8, _AES = 0x1, 0x800, 99
"""Flags of an entry: with a password, a name in UTF-8; the method of one encrypted with AES (APPNOTE 6.3.10)."""
_NOT_READ = re.compile(r"(?:^|/)(?:__MACOSX/|\._|(?:\.DS_Store|Thumbs\.db|desktop\.ini)$)|/$")
"""Folders, and files that systems add to them, with nothing of a person's."""
_HARMLESS = 10 * 1024**2
_DECLARATION = re.compile(rb"<\0?!\0?(?:D\0?O\0?C\0?T\0?Y\0?P\0?E|E\0?N\0?T\0?I\0?T\0?Y)")
_XML = (".xml", ".rels", ".vml")


def read_zip(source: Path, out: Output) -> str:
    """List the files, then read each as a file of its own; returns the description."""
    with zipfile.ZipFile(source) as archive:
        entries, names = archive.infolist(), _names(archive)
        comments = [decode(comment) for comment in (archive.comment, *(entry.comment for entry in entries)) if comment]
    lines = [f"{entry.file_size:>14,}  {name}" for entry, name in zip(entries[:MAX_ENTRIES], names, strict=False)]
    out.add("\n".join([*lines, *(f"[comment: {comment}]" for comment in comments[:MAX_ENTRIES])]))
    unpacked = sum(entry.file_size for entry in entries)
    description = f"archive, {len(entries):,} files, {unpacked:,} bytes unpacked: {', '.join(names[:20])}"
    if len(entries) > MAX_ENTRIES:
        out.problem = f"only the first {MAX_ENTRIES:,} names were listed"
        return description
    with checked_zip(source, office=False, locked=bool(out.password)) as archive:
        archive.setpassword(out.password.encode())
        files = [(entry, name) for entry, name in zip(entries, names, strict=True) if not _NOT_READ.search(name)]
        out.leave_out(f"further file (after {MAX_FILES})", len(files[MAX_FILES:]))
        for entry, name in files[:MAX_FILES]:
            try:
                content = archive.read(entry)
            except (RuntimeError, zipfile.BadZipFile, zlib.error, EOFError) as exc:
                # One wrong password in 256 is noticed by the bytes that it gives only.
                if out.password and not isinstance(exc, NotImplementedError):
                    raise out.locked() from None
                out.leave_out(f"damaged or unusually packed file ({name}; send it by itself)")
            else:
                out.add_file(name, content)
    return description


def read_gzip(source: Path, out: Output) -> str:
    """Read the one file inside; returns the description."""
    with gzip.open(source) as file:
        out.add_file("the file in it", file.read(MAX_UNPACKED_BYTES + 1))
    return f"packed file: {out.first_line()}"


def _names(archive: zipfile.ZipFile) -> list[str]:
    """The names of the files; without the flag of UTF-8, they are in an encoding of the system that packed them."""
    names = [" ".join(entry.filename.split()) for entry in archive.infolist()]
    if not any(entry.flag_bits & _UTF_8 for entry in archive.infolist()):
        read = (detected("\n".join(names).encode("cp437", "replace"), OF_DOS) or Decoded("")).text.split("\n")
        return read if len(read) == len(names) else names
    return names


@contextmanager
def checked_zip(source: Path, *, office: bool, locked: bool = False) -> Iterator[zipfile.ZipFile]:
    """Open a zip; raises `Unreadable` if it is a bomb, locked or damaged: `zipfile` unpacks no more than it states.

    With `office`, a document type is refused, too, since libraries read the parts: it holds entity bombs and outside
    references, and has no place in Office Open XML (ECMA-376-2, 8.2.5). Other formats are read by `xml_part`.
    A `locked` one is expected.
    """
    with zipfile.ZipFile(source) as archive:
        entries = archive.infolist()
        unpacked = sum(entry.file_size for entry in entries)
        if any(entry.compress_type == _AES for entry in entries):
            raise Unreadable("it's encrypted with AES, which isn't supported for .zip; unpack it and send the files")
        if not locked and any(entry.flag_bits & _LOCKED for entry in entries):
            raise Unreadable(LOCKED)
        most = min(MAX_UNPACKED_BYTES, max(_HARMLESS, MAX_RATIO * source.stat().st_size))
        if len(entries) > MAX_ENTRIES or unpacked > most:
            raise Unreadable(f"the file would unpack to {len(entries)} files of {unpacked >> 20} MB, more than is read")
        parts = (entry for entry in entries if office and entry.filename.lower().endswith(_XML))
        if any(_DECLARATION.search(archive.read(part)) for part in parts):
            raise Unreadable("the file declares XML entities, which no office program writes")
        yield archive


def xml_part(archive: zipfile.ZipFile, name: str) -> "_Element":
    """A part of a checked zip, read without document types, entities and network; raises `KeyError`."""
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True
    )
    return etree.fromstring(archive.read(name), parser)
