"""PDF: its text, page by page; pages that are only pictures are recognised."""

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gateway.ingest.ocr import SCAN_SIDE, recognised
from gateway.ingest.output import LONG_SIDE, MAX_FILES, MAX_PAGES, OCR_PAGES, Output, Unreadable
from gateway.ingest.text import html_text, parsed_html

if TYPE_CHECKING:
    from PIL.Image import Image
    from pypdfium2 import PdfPage

_MIN_LETTERS = 16
"""Letters and digits; a page with fewer may be a scan with a stamp on it."""
_STAMP_LETTERS = 200
"""A page with fewer under or over a large picture is a scan, too."""
_SCAN_SHARE = 0.4
"""Of the area of a page."""
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*[.,:;!?)\]\"”]*|[(\[€$£+-]*\d[\d.,:/%-]*[)€$£%.,:;]*")
_ENOUGH = 3
"""Pages that looked garbled and weren't; a text of formulas or code is believed from then on."""
_XFA = 2
"""`FORMTYPE_XFA_FULL` of PDFium."""
_ALIKE = 0.5
"""The share of recognised words that stand in the text as well."""


def read_pdf(source: Path, out: Output) -> str:
    """Read the pages, what is filled in and noted on them, and the files inside; raises `Unreadable`."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(source, out.password or None)
    except pypdfium2.PdfiumError as exc:
        locked = "password" in str(exc).lower()
        raise (out.locked() if locked else Unreadable("the PDF is damaged; save or print it anew")) from None
    with closing(document):
        if document.get_formtype():
            document.init_forms()
        count, pages = len(document), _Pages(out)
        for index in range(min(count, MAX_PAGES)):
            with closing(document[index]) as page:
                pages.read(page)
        out.problem = out.problem or pages.problem()
        if document.get_formtype() == _XFA:
            out.problem = "its form is one that only Adobe's programs show (XFA); send what they print as PDF"
        if count > MAX_PAGES:
            out.problem = f"only the first {MAX_PAGES} of {count:,} pages were read"
        title = str(document.get_metadata_dict().get("Title") or "")
        description = f"PDF, {count:,} page{'s' * (count != 1)}: {title or out.first_line()}"
        for index in range(min(document.count_attachments(), MAX_FILES)):
            attachment = document.get_attachment(index)
            out.add_file(attachment.get_name(), bytes(attachment.get_data()))
    return description


class _Pages:
    """Reads the pages of one document, and counts the scans that were recognised and those that were not."""

    def __init__(self, out: Output) -> None:
        self.recognised = self.left = self.doubtful = self.agreed = 0
        self._out = out

    def problem(self) -> str:
        """The scans and the doubts, in a line."""
        if self.left:
            return f"{self.left} scanned pages after the first {self.recognised} were not recognised"
        pages = f"{self.doubtful} page{'s' * (self.doubtful != 1)}"
        return f"the text of {pages} may be wrong; what the page shows stands below it" if self.doubtful else ""

    def read(self, page: "PdfPage") -> None:
        textpage = page.get_textpage()
        # U+FFFE and U+0002 stand for hyphens at the end of a line; the word goes on after them.
        text = str(textpage.get_text_bounded()).replace("\ufffe", "").replace("\x02", "")
        letters = sum(map(str.isalnum, text))
        scan = letters < _MIN_LETTERS or (letters < _STAMP_LETTERS and _is_picture(page))
        look = scan or (self.agreed < _ENOUGH and _is_doubtful(text))
        recognise = look and self._out.recognised < OCR_PAGES and self._out.has_ocr_time
        image = _rendered(page, SCAN_SIDE if look else LONG_SIDE) if recognise or self._out.has_image_room else None
        if look and (image is None or image.convert("L").getextrema() != (255, 255)):
            self.recognised += recognise
            self._out.recognised += recognise
            self.left += not recognise
            shown = recognised(image, self._out) if recognise and image else ""
            text = _joined(text, shown) if scan else self._compared(text, shown)
            if recognise and image and not self._out.pages:
                self._out.set_view(image)
        self._out.add("\n".join(filter(None, (text, *annotations(page)))))
        if image is not None:
            self._out.add_image(image)

    def _compared(self, text: str, shown: str) -> str:
        """The text if the page shows the same; else both, as doubtful."""
        if _share(shown, text) >= _ALIKE:
            self.agreed += bool(shown)
            return text
        self.doubtful += 1
        return f"{text}\n\n[The text above doesn't match what the page shows:]\n{shown}" if shown else text


def _joined(text: str, shown: str) -> str:
    """The recognised text of a scan, and those words of its own text that weren't recognised."""
    return shown if _share(text, shown) >= _ALIKE else "\n".join(filter(None, (text, shown)))


def _share(words: str, text: str) -> float:
    """The share of words that stand in the text; 1 without words."""
    wanted, found = words.lower().split(), set(text.lower().split())
    return sum(map(found.__contains__, wanted)) / len(wanted) if wanted else 1.0


def _is_picture(page: "PdfPage") -> bool:
    """Whether a picture covers much of the page."""
    import pypdfium2.raw as pdfium

    width, height = page.get_size()
    boxes = (each.get_bounds() for each in page.get_objects(filter=(pdfium.FPDF_PAGEOBJ_IMAGE,), max_depth=3))
    return any((right - left) * (top - bottom) > _SCAN_SHARE * width * height for left, bottom, right, top in boxes)


def _is_doubtful(text: str) -> bool:
    """Whether the words of a page look like none: glyphs with a wrong map, or with none."""
    words = text.split()
    odd = sum(not _WORD.fullmatch(word) for word in words)
    unmapped = sum(each == "\ufffd" or "\ue000" <= each <= "\uf8ff" or each < "\t" for each in text)
    latin = [each for each in text.lower() if "a" <= each <= "z"]
    vowels = sum(map("aeiouy".__contains__, latin))
    garbled = len(latin) > 80 and not 0.26 <= vowels / len(latin) <= 0.58
    return unmapped * 20 > len(text) or odd * 2 > len(words) or garbled


def _rendered(page: "PdfPage", long_side: int) -> "Image":
    """The page as a picture of 200 dpi, and at most `long_side` pixels."""
    scale = min(200 / 72, long_side / max(*page.get_size(), 1.0))
    image: Image = page.render(scale=scale).to_pil()
    return image.convert("RGB")


_UNREAD = dict.fromkeys((17, 18, 19, 21, 25, 26), "a file is attached here that isn't read; send it by itself")
_UNREAD |= {13: "stamp: see the picture of this page", 15: "drawing: see the picture of this page"}
"""Files, sounds, films and models, by PDFium's kinds of annotations (fpdf_annot.h); what only the page shows."""
_MAX_ANNOTATIONS = 5_000
_MAX_BYTES = 64 * 1024
"""Bytes of one text."""
_LABEL_POINTS = 200

_Handle: TypeAlias = object
_Getter: TypeAlias = Callable[..., int]
"""Fills the buffer, the last argument but one, with UTF-16; returns the bytes needed."""


def annotations(page: "PdfPage") -> Iterator[str]:
    """A line for each field that is filled in, each tick, and each note."""
    import pypdfium2.raw as pdfium

    for index in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        if annotation := pdfium.FPDFPage_GetAnnot(page, index):
            try:
                yield from _line(page, annotation)
            finally:
                pdfium.FPDFPage_CloseAnnot(annotation)


def _line(page: "PdfPage", annotation: _Handle) -> Iterator[str]:
    import pypdfium2.raw as pdfium

    subtype = pdfium.FPDFAnnot_GetSubtype(annotation)
    if subtype == pdfium.FPDF_ANNOT_WIDGET and page.formenv is not None:
        label = _label(page, annotation) or _text(pdfium.FPDFAnnot_GetFormFieldName, page.formenv, annotation)
        yield from _field(page.formenv, annotation, label)
    elif subtype == pdfium.FPDF_ANNOT_LINK:
        yield from _link(page, annotation)
    elif subtype != pdfium.FPDF_ANNOT_POPUP:
        if subtype in _UNREAD:
            yield f"[{_UNREAD[subtype]}]"
        if note := _string(annotation, b"Contents") or html_text(parsed_html(_string(annotation, b"RC"))):
            author = _string(annotation, b"T")
            yield f"[note{f' by {author}' if author else ''}: {note}]"


def _link(page: "PdfPage", annotation: _Handle) -> Iterator[str]:
    """The address behind words that don't show it."""
    import pypdfium2.raw as pdfium

    buffer, box = ctypes.create_string_buffer(_MAX_BYTES), pdfium.FS_RECTF()
    action = pdfium.FPDFLink_GetAction(pdfium.FPDFAnnot_GetLink(annotation))
    pdfium.FPDFAction_GetURIPath(page.pdf.raw, action, buffer, _MAX_BYTES)
    pdfium.FPDFAnnot_GetRect(annotation, box)
    address, corners = buffer.value.decode("utf-8", "replace"), (box.left, box.bottom, box.right, box.top)
    words = str(page.get_textpage().get_text_bounded(*corners)) if address else ""
    if address not in words:
        yield f"[link behind “{' '.join(words.split())}”: {address}]"


def _label(page: "PdfPage", annotation: _Handle) -> str:
    """The words on the left of a field."""
    import pypdfium2.raw as pdfium

    box = pdfium.FS_RECTF()
    pdfium.FPDFAnnot_GetRect(annotation, box)
    left, middle = max(0.0, box.left - _LABEL_POINTS), (box.top + box.bottom) / 2
    words = page.get_textpage().get_text_bounded(left, middle - 4, box.left, middle + 4)
    return str(words).strip().rpartition("\n")[2].rstrip(" :_.")


def _field(form: _Handle, annotation: _Handle, name: str) -> Iterator[str]:
    import pypdfium2.raw as pdfium

    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    value = _text(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)
    if kind in (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON):
        option = _text(pdfium.FPDFAnnot_GetFormFieldExportValue, form, annotation)
        shown = f" {option}" if option.lower() not in {"", "yes", "on", "1"} else ""
        yield f"{name}: [{'x' if pdfium.FPDFAnnot_IsChecked(form, annotation) else ' '}]{shown}"
    elif kind == pdfium.FPDF_FORMFIELD_SIGNATURE:
        yield f"{name}: [signature field]"
    elif kind != pdfium.FPDF_FORMFIELD_PUSHBUTTON and value:
        yield f"{name}: {value}"


def _string(annotation: _Handle, key: bytes) -> str:
    import pypdfium2.raw as pdfium

    return _text(pdfium.FPDFAnnot_GetStringValue, annotation, key)


def _text(get: _Getter, *arguments: object) -> str:
    size = min(get(*arguments, None, 0), _MAX_BYTES)
    buffer = ctypes.create_string_buffer(size + 2)
    get(*arguments, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return " ".join(buffer.raw[:size].decode("utf-16-le", "replace").rstrip("\0").split())
