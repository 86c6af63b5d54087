"""The folder that what was read goes into."""

import io
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.ingest.derived import Unreadable
from gateway.ingest.limits import IMAGE_BYTES, OCR_SECONDS, PAGE_IMAGES, PAGES, TEXT

if TYPE_CHECKING:
    from PIL.Image import Image

LONG_SIDE = 1568
"""Vision models gain nothing from more."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
_EMPTY_LINES = re.compile(r"\n{4,}")


class Output:
    """Pages are written as they come; `close` assembles them. What is left out is said in `problem`."""

    def __init__(self, folder: Path) -> None:
        self.problem = self.view = ""
        self.characters = 0
        self._folder, self._began = folder, time.monotonic()
        self._texts: list[str] = []
        self._image_bytes = self._images = 0

    @property
    def pages(self) -> int:
        """Pages so far."""
        return len(self._texts)

    @property
    def may_recognise(self) -> bool:
        """Is there time for another page to be recognised?"""
        return time.monotonic() - self._began < OCR_SECONDS

    @property
    def wants_image(self) -> bool:
        """Is there room for another page image?"""
        return self._images < PAGE_IMAGES and self._image_bytes < IMAGE_BYTES

    def add(self, text: str) -> None:
        """The next page; raises `Unreadable` when no more is kept."""
        if self.pages >= PAGES:
            raise Unreadable(f"only the first {PAGES} pages were read")
        text = clean(text)
        kept = text[: TEXT - self.characters]
        self._texts.append(kept)
        self.characters += len(kept)
        (self._folder / f"{self.pages:03}.txt").write_text(kept, encoding="utf-8")
        if len(kept) < len(text):
            raise Unreadable(f"only the first {TEXT >> 20} MB of text were kept")

    def add_image(self, image: "Image") -> None:
        """The picture of the page that was added last."""
        if self.wants_image:
            data = _as_jpeg(image)
            (self._folder / f"{self.pages:03}.jpg").write_bytes(data)
            self._image_bytes += len(data)
            self._images += 1

    def show(self, image: "Image") -> None:
        """The picture for a model."""
        self.view = "view.jpg"
        (self._folder / self.view).write_bytes(_as_jpeg(image))

    def close(self) -> str:
        """Write the whole text; its name, "" when there is none."""
        if not any(map(str.strip, self._texts)):
            return ""
        pages = self._texts
        if len(pages) > 1:
            pages = [f"--- page {number} ---\n{text}" for number, text in enumerate(pages, 1)]
        (self._folder / "text.txt").write_text("\n\n".join(pages) + "\n", encoding="utf-8")
        return "text.txt"

    def first_line(self) -> str:
        """The first line that says something."""
        lines = (line.strip(" \t#*-|>") for text in self._texts for line in text.splitlines())
        return next((line for line in lines if sum(map(str.isalnum, line)) > 2), "")


def clean(text: str) -> str:
    """Plain text: one kind of line end, nothing that controls a terminal, no deserts of white space."""
    text = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _EMPTY_LINES.sub("\n\n\n", _TRAILING.sub("", text)).strip("\n")


def _as_jpeg(image: "Image") -> bytes:
    """At most 1568 pixels and about 400 KB."""
    small = image.convert("RGB")
    small.thumbnail((LONG_SIDE, LONG_SIDE))
    data = b""
    for quality in (82, 70, 55, 40, 25):
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=quality, optimize=True)
        data = buffer.getvalue()
        if len(data) <= 400 * 1024:
            break
    return data
