"""Reading text off pictures. Tesseract does it best, where the system has it; what ships with us does it anywhere."""

import ctypes
import logging
import os
import re
import weakref
from contextlib import suppress
from functools import cache, cached_property
from statistics import mean
from typing import TYPE_CHECKING

from gateway.ingest.output import Output

if TYPE_CHECKING:
    from PIL.Image import Image

    from gateway.ingest.rapid import Rapid

SCAN_SIDE = 2400
"""Pixels of the long side of a page that is recognised: 200 dots an inch for A4."""
_LIBRARIES = (
    "libtesseract.so.5",
    "libtesseract.so.4",
    "/opt/homebrew/lib/libtesseract.dylib",
    "/usr/local/lib/libtesseract.dylib",
)
_UPRIGHT, _ONE_COLUMN = 1, 4
"""Page segmentation modes: orientation and columns are found out; lines go from one edge to the other."""
_DPI = 200
_SHORT = 12
"""Characters of the average line of what must be a table, whose columns were read one after the other."""
_SLACK = 8
_NO_MEMORY = re.compile("bad_?alloc|allocat|insufficient memory|failed to map segment", re.IGNORECASE)
"""How libraries say it that do not raise `MemoryError`."""

log = logging.getLogger(__name__)


class Ocr:
    """Loads the best engine there is at the first picture, which takes up to a second."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def read(self, image: "Image") -> str:
        """The text, or "" and the reason in the output's `problem`; raises `MemoryError`."""
        try:
            return self._engine.read(image)
        except Exception as exc:
            if isinstance(exc, MemoryError) or _NO_MEMORY.search(str(exc)):
                raise MemoryError("there isn't enough memory to recognise a page") from exc
            # The page itself can still be looked at, and the others read.
            log.exception("ocr.failed")
            reason = (str(exc).strip().splitlines() or [""])[-1]
            self._out.problem = f"text recognition failed: {type(exc).__name__}: {reason}"
            return ""

    @cached_property
    def _engine(self) -> "Tesseract | Rapid":
        return engine()


@cache
def engine() -> "Tesseract | Rapid":
    """Tesseract, else RapidOCR, which is imported only then; the same for all files of a process and its children."""
    if found := tesseract():
        return found
    from gateway.ingest.rapid import Rapid

    return Rapid()


def tesseract() -> "Tesseract | None":
    """None where there is none, or it has no language."""
    # Its threads make a page hardly faster, and cost three times the processor time.
    os.environ["OMP_THREAD_LIMIT"] = "1"
    for name in _LIBRARIES:
        with suppress(OSError, ValueError):
            return Tesseract(ctypes.CDLL(name))
    return None


class Tesseract:
    """The C interface of Tesseract (capi.h), with every language the system has; raises `ValueError` for none."""

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
        text, sure = self._recognised(grey, _UPRIGHT)
        lines = [len(line) for line in text.splitlines() if line.strip()]
        if len(lines) > 4 and mean(lines) < _SHORT:
            by_line, as_sure = self._recognised(grey, _ONE_COLUMN)
            return by_line if as_sure > sure - _SLACK else text
        return text

    def _recognised(self, grey: "Image", mode: int) -> tuple[str, int]:
        """The text, and how sure it is in percent."""
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
        """It tells them only once it has been asked to start; `osd` is none."""
        if self._library.TessBaseAPIInit3(self._handle, None, b"osd"):
            return b"eng"
        found = self._library.TessBaseAPIGetAvailableLanguagesAsVector(self._handle)
        names: list[bytes] = []
        while found[len(names)]:
            names.append(found[len(names)])
        self._library.TessDeleteTextArray(found)
        return b"+".join(sorted(set(names) - {b"osd", b"equ"})) or b"eng"
