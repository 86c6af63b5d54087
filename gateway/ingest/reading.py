"""A file of any kind into a folder of text and pictures: the job of the CPU process."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.domain.json import Json
from gateway.ingest.archive import read_zip
from gateway.ingest.derived import Derived, Kind, Unreadable
from gateway.ingest.documents import read_docx, read_mail, read_odf, read_pptx
from gateway.ingest.html import read_epub, read_page
from gateway.ingest.output import Output, clean
from gateway.ingest.pdf import read_pdf
from gateway.ingest.picture import read_image
from gateway.ingest.sheets import read_xlsx
from gateway.ingest.sniff import ODF, OFFICE, Type, sniff
from gateway.ingest.text import read_text

DESCRIPTION = 160
"""Characters a description may have."""

Reader = Callable[[Path, Output], str]
"""Adds pages to the output and returns the description; raises `Unreadable` when it can read no further."""

_BY_MIME: Mapping[str, Reader] = {
    "application/zip": read_zip,
    "message/rfc822": read_mail,
    f"{OFFICE}wordprocessingml.document": read_docx,
    f"{OFFICE}spreadsheetml.sheet": read_xlsx,
    f"{OFFICE}presentationml.presentation": read_pptx,
    f"{ODF}text": read_odf,
    f"{ODF}spreadsheet": read_odf,
    f"{ODF}presentation": read_odf,
}
_BY_KIND: Mapping[Kind, Reader] = {
    "pdf": read_pdf,
    "image": read_image,
    "page": read_page,
    "book": read_epub,
    "text": read_text,
    "code": read_text,
    "table": read_text,
}
_REFUSED = {
    "application/x-ole-storage": "it's password-protected or older than 2007; save it as .docx, .xlsx or PDF",
    "application/rtf": "rich text isn't supported; save it as .docx or PDF",
    "image/heic": "HEIC pictures aren't supported; send it as JPEG",
    "archive": "this kind of archive isn't supported; send it as .zip",
    "audio": "transcribing it needs a transcription model",
    "video": "transcribing it needs a transcription model",
}
"""By MIME type, else by kind."""


def read(source: str, target: str, name: str, mime: str) -> Json:
    """What `source` holds goes to the empty folder `target`: `text.txt`, `001.txt`, `001.jpg`, …, `view.jpg`.

    `name` and `mime` are what the sender claims; the bytes are believed before them. Returns a `Derived`; a bad file
    is its `problem`. Raises `MemoryError`, and `OSError` for what is wrong with the two paths.
    """
    path, out = Path(source), Output(Path(target))
    size = path.stat().st_size
    description = ""
    type = sniff(path, name, mime)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            description = _read(type, path, out) if size else ""
        except Unreadable as exc:
            out.problem = str(exc)
    text = out.close()
    problem = out.problem or ("" if text else "no text was found in it" if size else "the file is empty")
    told = _line(description or f"{type.kind}, {size:,} bytes: {out.first_line()}")
    return Derived(type.kind, type.mime, out.pages, out.characters, text, out.view, told, _line(problem)).to_json()


def _read(type: Type, path: Path, out: Output) -> str:
    if refused := _REFUSED.get(type.mime):
        raise Unreadable(refused)
    reader = _BY_MIME.get(type.mime) or _BY_KIND.get(type.kind)
    if reader is None:
        raise Unreadable(_REFUSED.get(type.kind, "this kind of file isn't supported"))
    try:
        return reader(path, out)
    except (Unreadable, MemoryError):
        raise
    except Exception as exc:
        # Libraries fail on hostile bytes in every way there is.
        raise Unreadable("the file is damaged, or not what it seems to be") from exc


def _line(text: str) -> str:
    """One line, short enough for a list of files."""
    line = " ".join(clean(text).split()).rstrip(" :,")
    return line if len(line) <= DESCRIPTION else line[: DESCRIPTION - 1] + "…"
