"""Turns a file of any kind into a folder of text and pictures, in a jailed child of the CPU process."""

import mimetypes
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path, PurePath

from gateway.domain.json import Json
from gateway.ingest import ocr
from gateway.ingest.archive import read_gzip, read_zip
from gateway.ingest.documents import read_docx, read_odf, read_pptx, read_rtf
from gateway.ingest.mail import read_mail, read_mbox, read_msg
from gateway.ingest.ocr import read_image
from gateway.ingest.output import (
    MAX_MEMORY_BYTES,
    MAX_OUTPUT_BYTES,
    MAX_SECONDS,
    ExtractedFile,
    Output,
    Unreadable,
    clean,
)
from gateway.ingest.pdf import read_pdf
from gateway.ingest.sheets import read_xls, read_xlsb, read_xlsx
from gateway.ingest.sniff import IPYNB, ODF, OFFICE, XLSB, FileType, sniff
from gateway.ingest.text import read_epub, read_notebook, read_page, read_svg, read_text
from gateway.sandbox.child import Jail, python_files, run_in_jail

MAX_DESCRIPTION = 160
MAX_PROBLEM = 300
"""Characters."""

Reader = Callable[[Path, Output], str]
"""Adds pages to the output and returns the description; raises `Unreadable` if it can't read on."""

_READERS: Mapping[str, Reader] = {
    "application/zip": read_zip,
    "application/gzip": read_gzip,
    "message/rfc822": read_mail,
    "application/mbox": read_mbox,
    "application/vnd.ms-outlook": read_msg,
    "application/rtf": read_rtf,
    "application/vnd.ms-excel": read_xls,
    XLSB: read_xlsb,
    IPYNB: read_notebook,
    "image/svg+xml": read_svg,
    f"{OFFICE}wordprocessingml.document": read_docx,
    f"{OFFICE}spreadsheetml.sheet": read_xlsx,
    f"{OFFICE}presentationml.presentation": read_pptx,
    **{f"{ODF}{kind}": read_odf for kind in ("text", "spreadsheet", "presentation", "graphics")},
    "pdf": read_pdf,
    "image": read_image,
    "page": read_page,
    "book": read_epub,
    **dict.fromkeys(("text", "code", "table"), read_text),
}
"""By MIME type, else by kind."""
_OLE = frozenset(
    {"application/encrypted", "application/msword", "application/vnd.ms-powerpoint", "application/vnd.ms-excel"}
)
"""Kinds of office files that may have a password."""
_READ_ONLY = "VelvetSweatshop"
"""Excel's password for workbooks that people open without one (MS-OFFCRYPTO, 2.3.6.2)."""
_REFUSED = {
    "application/encrypted": "it's protected in a way that isn't supported; send a copy without the protection",
    "application/msword": "Word files older than 2007 (.doc) aren't supported; save it as .docx or PDF",
    "application/vnd.ms-powerpoint": "slides older than 2007 (.ppt) aren't supported; save them as .pptx or PDF",
    "application/x-ole-storage": "this old kind of file isn't supported; save it as .docx, .xlsx, .pptx or PDF",
    "application/ms-tnef": "Outlook packed files into it; ask the sender for the letter as HTML or plain text",
    "unknown": "this kind of file isn't supported; send it as PDF or text",
    "archive": "this kind of archive isn't supported; send it as .zip",
    "audio/midi": "it holds notes for instruments, not sound; say in words what is in it",
    **dict.fromkeys(("audio", "video"), "transcribing it needs a transcription model"),
}
"""By MIME type, else by kind."""
_DAMAGED = {
    XLSB: "this binary workbook is damaged, or uses what isn't supported; save it as .xlsx",
    "image": "the picture is damaged or cut off; send it again, or a screenshot of it",
    "archive": "the archive is damaged or cut off; pack it anew, or send the files",
}
"""By MIME type, else by kind."""


def read_file(source: str, target: str, name: str, mime: str, password: str = "") -> Json:
    """Read `source` into the empty folder `target`: `text.txt`, `001.txt`, `001.jpg`, …, `view.jpg`.

    `name` and `mime` are the sender's claims; the bytes count more. Returns an `ExtractedFile`, in which `problem`
    reports a bad file. Raises `MemoryError`, and `OSError` for the two paths.
    """
    path, out = Path(source), Output(Path(target), _read_part, password)
    size = path.stat().st_size
    description = ""
    type = sniff(path, name, mime)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            type, path = _unlocked(type, path, name, out)
            description = _read(type, path, out) if size else ""
        except Unreadable as exc:
            out.problem = str(exc)
    text = out.close()
    nothing = "" if text else "no text was found in it" if size else "the file is empty"
    problem = "; ".join(filter(None, (out.problem, out.left_out))) or nothing
    shown = _short_line(description or f"{type.kind}, {size:,} bytes: {out.first_line()}")
    problem = _short_line(problem, MAX_PROBLEM)
    return ExtractedFile(type.kind, type.mime, out.pages, out.characters, text, out.view, shown, problem).to_json()


def _read(type: FileType, path: Path, out: Output) -> str:
    refused, reader = _REFUSED.get(type.mime), _READERS.get(type.mime) or _READERS.get(type.kind)
    if refused or reader is None:
        raise Unreadable(refused or _REFUSED.get(type.kind) or _REFUSED["unknown"])
    with _damage_named(type):
        return reader(path, out)


def _unlocked(type: FileType, path: Path, name: str, out: Output) -> tuple[FileType, Path]:
    """An office file without its password; raises `Unreadable` if that isn't known."""
    if type.mime not in _OLE:
        return type, path
    import msoffcrypto
    from msoffcrypto.exceptions import FileFormatError, InvalidKeyError

    with path.open("rb") as file, _damage_named(type):
        document = None
        with suppress(Exception):  # a file that it can't parse may still be read
            document = msoffcrypto.OfficeFile(file)
        if document is None or not document.is_encrypted():
            return type, path
        try:
            document.load_key(password=out.password or _READ_ONLY, verify_password=True)
            with (plain := out.decrypted()).open("wb") as decrypted:
                document.decrypt(decrypted)
        except FileFormatError:
            return type, path
        except InvalidKeyError:
            raise out.locked() from None
    return sniff(plain, name, ""), plain


@contextmanager
def _damage_named(type: FileType) -> Iterator[None]:
    """Raise `Unreadable` for all that libraries raise on hostile bytes."""
    try:
        yield
    except (Unreadable, MemoryError):
        raise
    except Exception as exc:
        general = "the file is damaged, or not what it seems to be; save it anew, or as PDF or text"
        raise Unreadable(_DAMAGED.get(type.mime) or _DAMAGED.get(type.kind, general)) from exc


def _read_part(path: Path, name: str, out: Output) -> None:
    """Read a file inside of another."""
    type, path = _unlocked(sniff(path, name, ""), path, name, out)
    if type.kind in {"audio", "video"}:
        raise Unreadable("sound inside of a file isn't transcribed; send it by itself")
    if path.stat().st_size:
        _read(type, path, out)


def _short_line(text: str, limit: int = MAX_DESCRIPTION) -> str:
    """One line, short enough for a list of files."""
    line = " ".join(clean(text).split()).rstrip(" :,")
    return line if len(line) <= limit else line[: limit - 1] + "…"


_SYSTEM = ("/usr/share", "/etc/localtime", "/proc/cpuinfo", "/sys/devices/system/cpu")
_LIBRARIES: Mapping[str, Sequence[str]] = {
    ".pdf": ("pypdfium2", "encodings.utf_16_le"),
    ".docx": ("mammoth",),
    ".pptx": ("pptx",),
    ".xlsx": ("openpyxl",),
}
_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic", ".heif"})


def read(source: str, target: str, name: str, mime: str, password: str = "") -> Json:
    """Run `read_file` in a jail; for the CPU process. Raises `ChildFailed`."""
    prepare(name)
    return in_jail(partial(read_file, source, target, name, mime, password), source, target)


def in_jail(work: Callable[[], Json], source: str, target: str, seconds: float = MAX_SECONDS) -> Json:
    """Run `work` with access to these two paths only; raises `ChildFailed`."""
    reads = (*python_files(), *_SYSTEM, source)
    return run_in_jail(Jail(reads, target, MAX_MEMORY_BYTES, seconds, MAX_OUTPUT_BYTES), work)


def prepare(name: str) -> None:
    """Import the libraries for a file of this name, so that its child, and those of later files, start with them."""
    mimetypes.init()
    if sys.platform != "linux":
        return  # elsewhere, threads of these libraries don't survive a fork
    suffix = PurePath(name).suffix.lower()
    for library in _LIBRARIES.get(suffix, ()):
        import_module(library)
    if suffix == ".pdf" or suffix in _PICTURES:
        from PIL import Image

        Image.preinit()
    if suffix in _PICTURES:
        ocr.engine()
