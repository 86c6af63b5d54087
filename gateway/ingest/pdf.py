"""PDF: its text, page by page; pages that are only pictures are recognised."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ingest.ocr import SCAN_SIDE, Ocr
from gateway.ingest.output import LONG_SIDE, MAX_PAGES, OCR_PAGES, Output, Unreadable

if TYPE_CHECKING:
    from PIL.Image import Image
    from pypdfium2 import PdfPage

_MIN_LETTERS = 16
"""Letters and digits; a page with fewer may be a scan with a stamp on it."""


def read_pdf(source: Path, out: Output) -> str:
    """Read the pages; returns the description, raises `Unreadable`."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(source)
    except pypdfium2.PdfiumError as exc:
        locked = "password" in str(exc).lower()
        raise Unreadable("the PDF is password-protected" if locked else "the PDF is damaged") from None
    with closing(document):
        count, pages = len(document), _Pages(out)
        for index in range(min(count, MAX_PAGES)):
            with closing(document[index]) as page:
                pages.read(page)
        if pages.left and not out.problem:
            out.problem = f"{pages.left} scanned pages after the first {pages.recognised} were not recognised"
        if count > MAX_PAGES:
            out.problem = f"only the first {MAX_PAGES} of {count:,} pages were read"
        title = str(document.get_metadata_dict().get("Title") or "")
    return f"PDF, {count:,} page{'s' * (count != 1)}: {title or out.first_line()}"


class _Pages:
    """Reads the pages of one document, and counts the scans that were recognised and those that were not."""

    def __init__(self, out: Output) -> None:
        self.recognised = self.left = 0
        self._out, self._ocr = out, Ocr(out)

    def read(self, page: "PdfPage") -> None:
        # U+FFFE and U+0002 stand for hyphens at the end of a line; the word goes on after them.
        text = str(page.get_textpage().get_text_bounded()).replace("\ufffe", "").replace("\x02", "")
        scan = sum(map(str.isalnum, text)) < _MIN_LETTERS
        recognise = scan and self.recognised < OCR_PAGES and self._out.has_ocr_time
        image = _rendered(page, SCAN_SIDE if scan else LONG_SIDE) if recognise or self._out.has_image_room else None
        first = self._out.pages == 0
        if scan and (image is None or image.convert("L").getextrema() != (255, 255)):
            self.recognised += recognise
            self.left += not recognise
            text = (self._ocr.read(image) if recognise and image else "") or text
            if first and recognise and image:
                self._out.set_view(image)
        self._out.add(text)
        if image is not None:
            self._out.add_image(image)


def _rendered(page: "PdfPage", long_side: int) -> "Image":
    """The page as a picture of 200 dpi, and at most `long_side` pixels."""
    scale = min(200 / 72, long_side / max(*page.get_size(), 1.0))
    image: Image = page.render(scale=scale).to_pil()
    return image.convert("RGB")
