"""The result of reading a file: its limits, the folder for pages and pictures, and the summary."""

import io
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from gateway.domain.errors import raising
from gateway.domain.json import Json, JsonObject

if TYPE_CHECKING:
    from PIL.Image import Image


MAX_SECONDS = 300.0
"""For one file, which is lost afterwards, so readers stop well before."""
MAX_OUTPUT_BYTES = 256 * 1024**2
"""Bytes on disk of everything extracted from one file."""
MAX_MEMORY_BYTES = 2 * 1024**3
"""Address space for one call of `read`, beyond the libraries loaded before it; OCR needs it."""
MAX_OCR_SECONDS = 180.0
"""No further page is recognised after this time."""

MAX_TEXT_CHARACTERS = 5 * 1024**2
"""Characters of text kept of one file."""
MAX_SOURCE_BYTES = 20 * 1024**2
"""Bytes that are read of a file that has no pages."""
MAX_PAGES = 500
OCR_PAGES = 50
MAX_PIXELS = 64_000_000
"""Larger pictures aren't decoded."""
PAGE_IMAGES = 50
"""Of a file."""

MAX_ENTRIES = 10_000
"""Files that are listed of an archive, or allowed in an office file."""
MAX_UNPACKED_BYTES = 150 * 1024**2
"""Bytes of an office file once unpacked."""
MAX_RATIO = 200
"""How many times an office file may grow when unpacked to more than 10 MB."""
MAX_DEPTH = 4
"""Files in files in a file."""
MAX_FILES = 500
"""Files inside of a file that are read, all levels together."""
MAX_ROWS = 20_000
MAX_COLUMNS = 200


LOCKED = (
    "it's password-protected; never write the password in a chat: send /secret with the file's name in the private "
    "chat, for a form, or unlock it on the page (Files) or with `supaclaw files unlock`"
)
WRONG_PASSWORD = "the password is wrong"

FileKind = Literal[
    "pdf", "image", "document", "sheet", "slides", "page", "book", "text", "code", "table", "archive", "audio", "video",
    "unknown",
]  # fmt: skip


class Unreadable(Exception):
    """One line for people: why a file wasn't read, or not to its end; the pages read so far are kept."""


@dataclass(frozen=True, slots=True)
class ExtractedFile:
    """The contents of the target folder, and the description of the file.

    `mime` is the type of the bytes, not the claimed one. `pages` counts the pages read, which are `001.txt` and so on.
    `text` and `view` are file names, "" if there is none. `problem` is one line for people, "" if all was read.
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
        """The JSON that the CPU process returns."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Json) -> "ExtractedFile":
        """Parse the JSON of `to_json`; raises `ValueError`."""
        with raising(ValueError("this is not the result of reading a file"), ValidationError):
            return _EXTRACTED.validate_python(value)


_EXTRACTED = TypeAdapter(ExtractedFile)


LONG_SIDE = 1568
"""Pixels; vision models gain nothing from more."""
_CONTROL = re.compile(r"\x1b\[[\d;?]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_LINE_END = re.compile(r"\r\n|[\r\v\f\x1c-\x1e]")
_TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
_MARK = re.compile(r"^--- (?:page|file)\b", re.MULTILINE)
"""The marks between pages and before files; those in a text are escaped."""
_END = re.compile(r"(?= [(]| (?:of|in|inside|that|beyond|without|or) |\Z)")
"""Where the plural of a part ends: "2 charts of a new kind"."""
_EMPTY_LINES = re.compile(r"\n{4,}")


ReadPart: TypeAlias = Callable[[Path, str, "Output"], None]
"""Reads a file, by its path and name, into an output; raises `Unreadable`."""


class Output:
    """Writes pages as they come; `close` assembles them. `problem` says how far the file was read.

    Files inside of the file are read by `read_part` into the same pages, within the same limits; `password` opens the
    file and those.
    """

    def __init__(self, folder: Path, read_part: ReadPart | None = None, password: str = "") -> None:
        self.password = password
        self.problem = self.view = ""
        self.recognised = 0
        """Scans and pictures so far, of all files in the file."""
        self._read_part = read_part
        self._left_out: Counter[str] = Counter()
        self._unread: dict[str, list[str]] = {}
        """The files in the file, by what is wrong with them."""
        self.depth = self._files = self._part_bytes = 0
        """How deep inside of the file the one is that is being read; of what is inside, so many files and bytes."""
        self._heading = ""
        self.characters = 0
        self._folder, self._began = folder, time.monotonic()
        self._texts: list[str] = []
        self._images = 0

    @property
    def pages(self) -> int:
        """The number of pages so far."""
        return len(self._texts)

    @property
    def has_ocr_time(self) -> bool:
        """Whether there is time to recognise another page."""
        return time.monotonic() - self._began < MAX_OCR_SECONDS

    @property
    def has_image_room(self) -> bool:
        """Whether there is room for another page image."""
        return self._images < PAGE_IMAGES

    def add(self, text: str) -> None:
        """Add the next page; raises `Unreadable` beyond a limit."""
        if self.pages >= MAX_PAGES:
            raise Unreadable(f"only the first {MAX_PAGES} pages were read")
        text = _MARK.sub(r"\\\g<0>", clean(text))
        if self._heading and text:
            text, self._heading = f"{self._heading}\n{text}", ""
        fitting = text[: MAX_TEXT_CHARACTERS - self.characters]
        self._texts.append(fitting)
        self.characters += len(fitting)
        (self._folder / f"{self.pages:03}.txt").write_text(fitting, encoding="utf-8")
        if len(fitting) < len(text):
            raise Unreadable(f"only the first {MAX_TEXT_CHARACTERS >> 20} MB of text were kept")

    def locked(self) -> Unreadable:
        """The reason why a file that needs a password isn't read."""
        return Unreadable(WRONG_PASSWORD if self.password else LOCKED)

    def decrypted(self) -> Path:
        """A new file for the bytes of one that was encrypted."""
        return self._folder / f"decrypted-{self._files}"

    def leave_out(self, part: str, count: int = 1) -> None:
        """Count a part that isn't read, such as "picture"."""
        if count:
            self._left_out[part] += count

    @property
    def left_out(self) -> str:
        """One line, "x.bin: why; left out: 2 pictures, 1 comment"; "" if all was read."""
        unread = (f"{_some(names)}: {why}" for why, names in self._unread.items())
        counted = ((count, _END.sub("s" * (count > 1), part, count=1)) for part, count in self._left_out.most_common())
        parts = ", ".join(f"{count:,} {part}" for count, part in counted)
        return "; ".join([*unread, *([f"left out: {parts}"] if parts else [])])

    def add_file(self, name: str, content: bytes) -> None:
        """Read a file inside of this one as further pages; a part that can't be read is named in `left_out`."""
        name = " ".join(clean(name).split())[:80] or "without a name"
        self._files += 1
        self._part_bytes += len(content)
        read = self._read_part
        if read is None or self.depth >= MAX_DEPTH or self._files > MAX_FILES or self._part_bytes > MAX_UNPACKED_BYTES:
            self.leave_out("file beyond the limits")
            return
        outer, self.problem, self.depth = self.problem, "", self.depth + 1
        self._heading = f"--- file: {name} ---"
        path = self._folder / f"part-{self.depth}"
        try:
            path.write_bytes(content)
            read(path, name, self)
        except Unreadable as exc:
            if self.pages >= MAX_PAGES or self.characters >= MAX_TEXT_CHARACTERS:
                raise
            self.problem = str(exc)
        finally:
            path.unlink(missing_ok=True)
            self.depth -= 1
            self._heading = ""
            if self.problem:
                self._unread.setdefault(self.problem, []).append(name)
            self.problem = outer

    def add_image(self, image: "Image") -> None:
        """Add the picture of the last page, if there is room."""
        if self.has_image_room:
            (self._folder / f"{self.pages:03}.jpg").write_bytes(_as_jpeg(image))
            self._images += 1

    def set_view(self, image: "Image") -> None:
        """Set the picture for a model; of a file in a file only if there is no text so far."""
        if self.depth and (self.view or any(self._texts)):
            return
        self.view = "view.jpg"
        (self._folder / self.view).write_bytes(_as_jpeg(image))

    def close(self) -> str:
        """Write the whole text; returns its file name, "" if there is no text."""
        if not any(map(str.strip, self._texts)):
            return ""
        pages = self._texts
        if len(pages) > 1:
            pages = [f"--- page {number} ---\n{text}" for number, text in enumerate(pages, 1)]
        (self._folder / "text.txt").write_text("\n\n".join(pages) + "\n", encoding="utf-8")
        return "text.txt"

    def first_line(self) -> str:
        """The first line with at least three letters or digits."""
        lines = (line.strip(" \t#*-|>") for text in self._texts for line in text.splitlines() if not _MARK.match(line))
        return next((line for line in lines if sum(map(str.isalnum, line)) > 2), "")


def _some(names: list[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join([*names[:3], *([f"{len(names) - 3:,} more"] if names[3:] else [])])


def clean(text: str) -> str:
    """Plain text: uniform line ends, no control characters, no long runs of white space."""
    text = _CONTROL.sub("", _LINE_END.sub("\n", text))
    return _EMPTY_LINES.sub("\n\n\n", _TRAILING.sub("", text)).strip("\n")


def _as_jpeg(image: "Image") -> bytes:
    """A JPEG of at most 1568 pixels and about 400 KB."""
    small = image.convert("RGB")
    small.thumbnail((LONG_SIDE, LONG_SIDE))
    for quality in (82, 70, 55, 40, 25):
        small.save(buffer := io.BytesIO(), "JPEG", quality=quality, optimize=True)
        if buffer.tell() <= 400 * 1024:
            break
    return buffer.getvalue()
