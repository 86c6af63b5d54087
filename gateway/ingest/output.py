"""What is made of a file: how much is read at most, the folder for pages and pictures, and the result."""

import io
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import TypeAdapter, ValidationError

from gateway.domain.json import Json, JsonObject

if TYPE_CHECKING:
    from PIL.Image import Image


MAX_SECONDS = 300.0
"""For one file; what was read is lost after it, so readers stop well before."""
MAX_OUTPUT_BYTES = 256 * 1024**2
"""Bytes on disk of all that is made of one file."""
MAX_MEMORY_BYTES = 2 * 1024**3
"""Address space for one call of `read`, beside the libraries loaded before it; OCR is what needs it."""
MAX_OCR_SECONDS = 180.0
"""After this much time no further page is recognised."""

MAX_TEXT_CHARACTERS = 5 * 1024**2
"""Characters of text kept of one file."""
MAX_SOURCE_BYTES = 20 * 1024**2
"""Bytes that are read of a file that is read as a whole."""
MAX_PAGES = 500
OCR_PAGES = 50
MAX_PIXELS = 64_000_000
"""A picture with more is not decoded."""
PAGE_IMAGES = 50
MAX_IMAGE_BYTES = 40 * 1024**2
"""All page images of a file together."""

MAX_ENTRIES = 10_000
"""Files in an archive that are listed, or taken for granted in an office file."""
MAX_UNPACKED_BYTES = 150 * 1024**2
"""Bytes of an office file once unpacked."""
MAX_RATIO = 200
"""How many times larger than packed an office file of more than 10 MB may be."""
MAX_ROWS = 20_000
MAX_COLUMNS = 200


FileKind = Literal[
    "pdf", "image", "document", "sheet", "slides", "page", "book", "text", "code", "table", "archive", "audio", "video",
    "unknown",
]  # fmt: skip


class Unreadable(Exception):
    """One line for people: why a file was not read, or not further; what was read until then is kept."""


@dataclass(frozen=True, slots=True)
class Derived:
    """What lies in the target folder, and what is told of the file.

    `mime` is what the bytes are, whatever was claimed. `pages` counts the pages read, which are `001.txt` and so on.
    `text` and `view` are file names, "" when there is none. `problem` is one line for people, "" when all was read.
    """

    kind: FileKind
    mime: str
    pages: int
    characters: int
    text: str
    view: str
    description: str
    problem: str

    def to_json(self) -> JsonObject:
        """As it leaves the CPU process."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Json) -> "Derived":
        """Raises `ValueError` for what `to_json` has not made."""
        try:
            return TypeAdapter(cls).validate_python(value)
        except ValidationError as exc:
            raise ValueError("that is not what a file was made into") from exc


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
        return time.monotonic() - self._began < MAX_OCR_SECONDS

    @property
    def wants_image(self) -> bool:
        """Is there room for another page image?"""
        return self._images < PAGE_IMAGES and self._image_bytes < MAX_IMAGE_BYTES

    def add(self, text: str) -> None:
        """The next page; raises `Unreadable` when no more is kept."""
        if self.pages >= MAX_PAGES:
            raise Unreadable(f"only the first {MAX_PAGES} pages were read")
        text = clean(text)
        kept = text[: MAX_TEXT_CHARACTERS - self.characters]
        self._texts.append(kept)
        self.characters += len(kept)
        (self._folder / f"{self.pages:03}.txt").write_text(kept, encoding="utf-8")
        if len(kept) < len(text):
            raise Unreadable(f"only the first {MAX_TEXT_CHARACTERS >> 20} MB of text were kept")

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
