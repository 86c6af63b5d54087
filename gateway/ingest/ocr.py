"""Recognises text in pictures: with Tesseract if the system has it, else with RapidOCR, which is a dependency."""

import ctypes
import logging
import os
import re
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gateway.domain.errors import raising
from gateway.ingest.output import MAX_PIXELS, OCR_PAGES, Output, Unreadable

if TYPE_CHECKING:
    from PIL.Image import Image

SCAN_SIDE = 2400
"""Pixels of the long side of a page for recognition: 200 dpi for A4."""
_LIBRARIES = (
    "libtesseract.so.5",
    "libtesseract.so.4",
    "/opt/homebrew/lib/libtesseract.dylib",
    "/usr/local/lib/libtesseract.dylib",
)
_UPRIGHT, _ONE_COLUMN = 1, 4
"""Page segmentation modes: with detection of orientation and columns; with lines from edge to edge."""
_DPI = 200
_SHORT_LINE = 12
"""Characters of the average line below which a page must be a table that was read column by column."""
_SLACK = 8
"""Percent of confidence that reading a table by lines may cost."""
_NO_MEMORY = re.compile("bad_?alloc|allocat|insufficient memory|failed to map segment", re.IGNORECASE)
"""Errors of libraries that don't raise `MemoryError`."""

log = logging.getLogger(__name__)


def recognised(image: "Image", out: Output) -> str:
    """The text, or "" and the reason in the output's `problem`; raises `MemoryError`.

    The first picture loads the best engine, which takes up to a second.
    """
    try:
        return engine().read(image)
    except Exception as exc:
        if isinstance(exc, MemoryError) or _NO_MEMORY.search(str(exc)):
            raise MemoryError("there isn't enough memory to recognise a page") from exc
        # The page is still kept as a picture, and the others are read.
        log.exception("ocr.failed")
        reason = (str(exc).strip().splitlines() or [""])[-1]
        out.problem = f"text recognition failed: {type(exc).__name__}: {reason}"
        return ""


@cache
def engine() -> "Tesseract | Rapid":
    """Tesseract, else RapidOCR, which is imported only then; cached for the process and its children."""
    return tesseract() or Rapid()


def tesseract() -> "Tesseract | None":
    """Tesseract; None if it isn't installed or has no language."""
    # Its threads hardly speed up a page, at three times the CPU time.
    os.environ["OMP_THREAD_LIMIT"] = "1"
    for name in _LIBRARIES:
        with suppress(OSError, ValueError):
            return Tesseract(ctypes.CDLL(name))
    return None


class Tesseract:
    """The C interface of Tesseract (capi.h), with every language of the system; raises `ValueError` if it has none."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.TessBaseAPICreate.restype = ctypes.c_void_p
        library.TessBaseAPIGetUTF8Text.restype = ctypes.c_void_p
        library.TessBaseAPIGetAvailableLanguagesAsVector.restype = ctypes.POINTER(ctypes.c_char_p)
        self._library = library
        self._handle = ctypes.c_void_p(library.TessBaseAPICreate())
        weakref.finalize(self, library.TessBaseAPIDelete, self._handle)
        if library.TessBaseAPIInit3(self._handle, None, self._languages()):
            raise ValueError("Tesseract has no language")
        library.TessBaseAPISetVariable(self._handle, b"debug_file", os.devnull.encode())

    def read(self, image: "Image") -> str:
        """The text; a table is read line by line."""
        grey = image.convert("L")
        text, confidence = self._recognised(grey, _UPRIGHT)
        lines = [len(line) for line in text.splitlines() if line.strip()]
        if len(lines) > 4 and mean(lines) < _SHORT_LINE:
            by_line, by_line_confidence = self._recognised(grey, _ONE_COLUMN)
            return by_line if by_line_confidence > confidence - _SLACK else text
        return text

    def _recognised(self, grey: "Image", mode: int) -> tuple[str, int]:
        """The text, and the confidence in percent."""
        library, handle = self._library, self._handle
        library.TessBaseAPISetPageSegMode(handle, mode)
        library.TessBaseAPISetImage(handle, grey.tobytes(), grey.width, grey.height, 1, grey.width)
        library.TessBaseAPISetSourceResolution(handle, _DPI)
        address = library.TessBaseAPIGetUTF8Text(handle)
        if not address:
            return "", 0
        text = ctypes.string_at(address).decode("utf-8", "replace")
        library.TessDeleteText(ctypes.c_void_p(address))
        return text, int(library.TessBaseAPIMeanTextConf(handle))

    def _languages(self) -> bytes:
        """All languages, which it lists only after a start; `osd` and `equ` aren't languages."""
        if self._library.TessBaseAPIInit3(self._handle, None, b"osd"):
            return b"eng"
        found = self._library.TessBaseAPIGetAvailableLanguagesAsVector(self._handle)
        names: list[bytes] = []
        while found[len(names)]:
            names.append(found[len(names)])
        self._library.TessDeleteTextArray(found)
        return b"+".join(sorted(set(names) - {b"osd", b"equ"})) or b"eng"


_MIN_UPRIGHT = 0.8
"""A lower average means that the picture is rotated."""

Corners: TypeAlias = Sequence[tuple[float, float]]
"""The corners of a box, clockwise from the upper left."""


class _Words(NamedTuple):
    left: float
    top: float
    bottom: float
    text: str
    upright: float
    """Confidence times length; 0 for a vertical line."""


class Rapid:
    """RapidOCR on one thread. Its own orientation guess is off, because it turns upright lines over."""

    def __init__(self) -> None:
        import rapidocr

        # Its runtime would report its use to the maker.
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        # Named models aren't downloaded.
        models = Path(rapidocr.__file__).parent / "models"
        self._engine = rapidocr.RapidOCR(
            params={
                "Global.log_level": "error",
                "Global.use_cls": False,
                "Global.max_side_len": 2600,
                "EngineConfig.onnxruntime.intra_op_num_threads": 1,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                "Det.model_path": str(models / "PP-OCRv6_det_small.onnx"),
                "Rec.model_path": str(models / "PP-OCRv6_rec_small.onnx"),
                # Lines are found on a smaller picture than they are read on, and read one by one: a quarter less time.
                "Det.limit_type": "max",
                "Det.limit_side_len": 1280,
                "Rec.rec_batch_num": 1,
            }
        )

    def read(self, image: "Image") -> str:
        """The text, line by line; a picture that seems rotated is turned."""
        words = self._words(image)
        if words and _upright(words) < _MIN_UPRIGHT * sum(len(each.text) for each in words):
            turned = (self._words(image.rotate(angle, expand=True)) for angle in (90, 180, 270))
            words = max([words, *turned], key=_upright)
        return "\n".join(_lines(words))

    def _words(self, image: "Image") -> list[_Words]:
        import numpy as np
        from rapidocr.utils.output import RapidOCROutput

        blue_first = np.asarray(image.convert("RGB"))[:, :, ::-1]
        found = self._engine(blue_first)
        if not isinstance(found, RapidOCROutput) or found.boxes is None or not found.txts or not found.scores:
            return []
        return [_words_at(*each) for each in zip(found.boxes.tolist(), found.txts, found.scores, strict=True)]


def _words_at(corners: Corners, text: str, confidence: float) -> _Words:
    across, down = zip(*corners, strict=True)
    left, right, top, bottom = min(across), max(across), min(down), max(down)
    return _Words(left, top, bottom, text, confidence * len(text) * (right - left > bottom - top))


def _upright(words: list[_Words]) -> float:
    return sum(each.upright for each in words)


def _lines(words: list[_Words]) -> list[str]:
    lines: list[list[_Words]] = []
    for each in sorted(words, key=lambda each: each.top + each.bottom):
        middle = (each.top + each.bottom) / 2
        if lines and lines[-1][0].top < middle < lines[-1][0].bottom:
            lines[-1].append(each)
        else:
            lines.append([each])
    return [" ".join(each.text for each in sorted(line)) for line in lines]


_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF", "ICO")


def read_image(source: Path, out: Output) -> str:
    """Read every page of a TIFF, or the first frame of an animation; returns the description."""
    with _opened(source) as image:
        frames = getattr(image, "n_frames", 1)
        count = frames if image.format == "TIFF" else 1
        out.leave_out("further frame", (frames - count) * (image.format != "MPO"))
        pages = f", {count} pages" if count > 1 else ""
        description = f"{image.format} picture, {image.width} × {image.height}{pages}"
        for index in range(count):
            if out.recognised >= OCR_PAGES or not out.has_ocr_time:
                out.problem = f"only the first {index} of {count:,} pages were read"
                break
            out.recognised += 1
            image.seek(index)
            page = _decoded(image)
            if not index:
                out.set_view(page)
            text = recognised(page, out)
            out.add(text)
            out.add_image(page)
            if not text and out.depth:
                out.leave_out("picture without text")
    first_line = out.first_line()
    return description + (f", reads: {first_line}" if first_line else "")


def _opened(source: Path) -> "Image":
    """Open the picture without decoding it; raises `Unreadable`."""
    from pi_heif import register_heif_opener
    from PIL import Image

    register_heif_opener(thumbnails=False)
    with raising(Unreadable("the picture has too many pixels to be opened"), Image.DecompressionBombError):
        return Image.open(source, formats=_FORMATS)


def _decoded(image: "Image") -> "Image":
    """The current frame, upright, on white, without metadata, no larger than a scan."""
    from PIL import Image, ImageOps

    if image.width * image.height > MAX_PIXELS:
        raise Unreadable(f"the picture has {image.width} × {image.height} pixels, more than allowed")
    image.draft("RGB", (SCAN_SIDE, SCAN_SIDE))
    alpha = "A" in image.getbands() or "transparency" in image.info
    small = image.convert("RGBA" if alpha else "RGB")
    small.thumbnail((SCAN_SIDE, SCAN_SIDE), Image.Resampling.LANCZOS)
    small = ImageOps.exif_transpose(small)
    plain = Image.new("RGB", small.size, "white")
    plain.paste(small, mask=small if alpha else None)
    return plain
