"""The type of a file, by its first bytes; its name decides only between kinds of text."""

import mimetypes
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gateway.ingest.encoding import decode
from gateway.ingest.output import FileKind

_HEAD = 64 * 1024
OFFICE = "application/vnd.openxmlformats-officedocument."
ODF = "application/vnd.oasis.opendocument."


class FileType(NamedTuple):
    """A kind and its MIME type."""

    kind: FileKind
    mime: str


UNKNOWN = FileType("unknown", "application/octet-stream")
ZIP = FileType("archive", "application/zip")
XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
IPYNB = "application/x-ipynb+json"
_OLE: tuple[tuple[str, FileType], ...] = (
    ("EncryptedPackage", FileType("document", "application/encrypted")),
    ("__properties_version1.0", FileType("document", "application/vnd.ms-outlook")),
    ("WordDocument", FileType("document", "application/msword")),
    ("PowerPoint Document", FileType("slides", "application/vnd.ms-powerpoint")),
    ("Workbook", FileType("sheet", "application/vnd.ms-excel")),
    ("Book", FileType("sheet", "application/vnd.ms-excel")),
)
"""By the streams of a compound file (MS-CFB)."""

_MAGIC: tuple[tuple[bytes, FileKind, str], ...] = (
    (rb"\x89PNG\r\n\x1a\n", "image", "image/png"),
    (rb"\xff\xd8\xff", "image", "image/jpeg"),
    (rb"GIF8[79]a", "image", "image/gif"),
    (rb"RIFF....WEBP", "image", "image/webp"),
    (rb"BM.{12}[\x0c\x28\x38\x40\x6c\x7c]\0\0\0", "image", "image/bmp"),
    (rb"II\*\0|MM\0\*", "image", "image/tiff"),
    (rb"....ftypavi[fs]", "image", "image/avif"),
    (rb"....ftyp(?:hei|hev|mif1|msf1)", "image", "image/heic"),
    (rb"RIFF....AVI ", "video", "video/x-msvideo"),
    (rb"\0\0\x01[\xb3\xba]|FLV\x01", "video", "video/mpeg"),
    (rb"\{\\rtf", "document", "application/rtf"),
    (rb"\x1f\x8b", "archive", "application/gzip"),
    (rb"BZh[1-9]1AY&SY", "archive", "application/x-bzip2"),
    (rb"\xfd7zXZ\0", "archive", "application/x-xz"),
    (rb".{257}ustar", "archive", "application/x-tar"),
    (rb"7z\xbc\xaf\x27\x1c", "archive", "application/x-7z-compressed"),
    (rb"Rar!\x1a\x07", "archive", "application/vnd.rar"),
    (rb"\x28\xb5\x2f\xfd", "archive", "application/zstd"),
    # Cabinet, compress, LZ4, LHA, a part of a divided zip, ar.
    (rb"MSCF\0|\x1f\x9d|\x04\x22M\x18|..-lh\d-|PK\x07\x08|!<arch>\n", "archive", "application/x-archive"),
    (rb"\x78\x9f\x3e\x22", "archive", "application/ms-tnef"),
    (rb"RIFF....WAVE|RF64....WAVE", "audio", "audio/wav"),
    (rb"fLaC", "audio", "audio/flac"),
    # Cyrillic letters may look like the beginning of a frame of sound, which has zeros.
    (rb"\xff[\xf0\xf1\xf8\xf9](?=.*\0)", "audio", "audio/aac"),
    # A frame of layer III or II whose bit rate and sample rate exist.
    (rb"ID3[\2-\4]|\xff[\xe2\xe3\xf2-\xf5\xfa-\xfd][\x10-\x1b\x20-\x2b\x30-\xeb](?=.*\0)", "audio", "audio/mpeg"),
    (rb"#!AMR", "audio", "audio/amr"),
    (rb"caff\0", "audio", "audio/x-caf"),
    (rb"FORM....AIF[FC]", "audio", "audio/aiff"),
    (rb"MThd\0", "audio", "audio/midi"),
    (rb"OggS(?=.{0,512}\x80theora)", "video", "video/ogg"),
    (rb"OggS", "audio", "audio/ogg"),
    (rb"\x1aE\xdf\xa3(?=.*V_|(?!.*A_))", "video", "video/webm"),
    (rb"\x1aE\xdf\xa3", "audio", "audio/webm"),
    (rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11(?=.*\xc0\xef\x19\xbc\x4d\x5b\xcf\x11)", "video", "video/x-ms-wmv"),
    (rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "audio", "audio/x-ms-wma"),
)
_OFFICE: tuple[tuple[str, FileType], ...] = (
    ("word/", FileType("document", f"{OFFICE}wordprocessingml.document")),
    ("xl/", FileType("sheet", f"{OFFICE}spreadsheetml.sheet")),
    ("ppt/", FileType("slides", f"{OFFICE}presentationml.presentation")),
)
OLE = FileType("document", "application/x-ole-storage")
_TYPED: Mapping[str, FileKind] = {
    "application/epub+zip": "book",
    f"{ODF}text": "document",
    f"{ODF}spreadsheet": "sheet",
    **dict.fromkeys((f"{ODF}presentation", f"{ODF}graphics"), "slides"),
}
_NAMED: Mapping[str, FileType] = {
    "csv": FileType("table", "text/csv"),
    "tsv": FileType("table", "text/tab-separated-values"),
    "json": FileType("text", "application/json"),
    **dict.fromkeys(("eml", "mht", "mhtml"), FileType("document", "message/rfc822")),
    "mbox": FileType("document", "application/mbox"),
    "ipynb": FileType("text", IPYNB),
    "md": FileType("text", "text/markdown"),
}
_CODE = re.compile(
    "bash|bat|c|cc|clj|cpp|cs|css|dart|diff|ex|go|h|hpp|hs|ini|java|jl|js|jsx|kt|lua|m|mjs|php|pl|ps1|py|r|rb|rs|scala|sh|"
    "sql|svelte|swift|tf|toml|tsx?|vb|vue|xml|ya?ml|zig"
)


def sniff(source: Path, name: str, mime: str) -> FileType:
    """The type by the first 64 KB and the list of files of a zip; the claims distinguish texts."""
    with source.open("rb") as file:
        head = file.read(_HEAD)
    if head.lstrip().startswith(b"%PDF-") or (b"%PDF-" in head[:1024] and decode(head) is None):
        return FileType("pdf", "application/pdf")
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return _zipped(source)
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return _compound(source)
    for magic, kind, found in _MAGIC:
        if re.match(magic, head, re.DOTALL):
            return FileType(kind, found)
    if head[4:8] == b"ftyp":
        return _movie(source, head[8:12])
    text = decode(head)
    if text is None:
        return UNKNOWN
    extension = name.rpartition(".")[2] if "." in name else (mimetypes.guess_extension(mime) or "")
    return _text(text, extension.lstrip(".").lower())


def _compound(source: Path) -> FileType:
    import olefile

    with suppress(OSError, ValueError, IndexError, struct.error), olefile.OleFileIO(source) as file:
        return next((type for stream, type in _OLE if file.exists(stream)), OLE)
    return OLE


def _zipped(source: Path) -> FileType:
    try:
        with zipfile.ZipFile(source) as archive:
            names = [name.replace("\\", "/") for name in archive.namelist()]
            if "mimetype" in names:
                with archive.open("mimetype") as file:
                    mime = file.read(100).strip().decode("ascii", "replace").removesuffix("-template")
                return FileType(_TYPED[mime], mime) if mime in _TYPED else ZIP
    except (zipfile.BadZipFile, zlib.error, ValueError, RuntimeError, EOFError, OSError):
        return ZIP
    if "[Content_Types].xml" not in names:
        return ZIP
    if "xl/workbook.bin" in names:
        return FileType("sheet", XLSB)
    return next((type for folder, type in _OFFICE if any(name.startswith(folder) for name in names)), ZIP)


def _text(text: str, extension: str) -> FileType:
    start = text[:2000].lstrip().lower()
    if start.startswith(("<!doctype html", "<html")) or (extension in {"html", "htm", "xhtml"} and "<" in start):
        return FileType("page", "text/html")
    if start.startswith("<svg") or (start.startswith("<?xml") and "<svg" in start):
        return FileType("page", "image/svg+xml")
    if re.match(r"from \S+ .*\d{4}.*\n[\w-]+:", start):
        return _NAMED["mbox"]
    if extension in _NAMED and (extension != "ipynb" or '"worksheets"' not in text):  # of old versions
        return _NAMED[extension]
    if _CODE.fullmatch(extension) or start.startswith("#!"):
        return FileType("code", f"text/x-{extension or 'script'}")
    return FileType("text", "text/plain")


MAX_MOOV_BYTES = 2 * 1024**2


def _movie(source: Path, brand: bytes) -> FileType:
    """ISO 14496-12: the handlers in `moov`, at an end of the file, name the kinds of tracks; a brand may be wrong."""
    with source.open("rb") as file:
        ends = file.read(MAX_MOOV_BYTES)
        file.seek(max(len(ends), source.stat().st_size - MAX_MOOV_BYTES))
        tracks = re.findall(rb"hdlr.{8}(vide|soun)", ends + file.read(), re.DOTALL)
    film = b"vide" in tracks if tracks else not brand.startswith((b"M4A", b"M4B"))
    kind: FileKind = "video" if film else "audio"
    return FileType(kind, f"{kind}/3gpp" if brand.startswith(b"3g") else f"{kind}/mp4")
