"""Safe names for received files: readable, harmless, and without clashes with files derived from others."""

import mimetypes
import re
import unicodedata
from collections.abc import Iterator, Set

TEXT, PAGES = ".txt", ".pages"
"""Suffixes of a file's extracted text and of the folder of its pages."""
MAX_BYTES = 150
"""The most bytes of a name; the suffixes of derived files need room."""
MAX_VARIANTS = 10_000

_SEPARATORS = re.compile(r"[/\\]")
_UNSAFE = re.compile(r'[<>:"|?*\[\]`]')


def mime_of(path: str) -> str:
    """The type of a file of the workspace by its name; text where that tells none."""
    return mimetypes.guess_type(path)[0] or "text/plain"


def safe_name(name: str, mime: str = "") -> str:
    """The last part of a name, without invisible and special characters; never empty or hidden."""
    last = _SEPARATORS.split(unicodedata.normalize("NFC", name).rstrip("/\\"))[-1]
    seen = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in last)
    clean = " ".join(_UNSAFE.sub("_", seen).split()).strip(". ")
    if not clean:
        clean = f"file{mimetypes.guess_extension(mime) or ''}"
    stem, extension = _split(clean)
    return f"{_cut(stem, MAX_BYTES - len(extension.encode()))}{extension}"


def candidates(name: str) -> Iterator[str]:
    """Yield the name, then the name with -2, -3 … before its extension."""
    yield name
    stem, extension = _split(name)
    for number in range(2, MAX_VARIANTS):
        yield f"{stem}-{number}{extension}"


def taken(name: str, names: Set[str]) -> bool:
    """Whether the name, or that of a file derived from it, is in use, or the name is that of another's derived file."""
    beside = any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in (TEXT, PAGES))
    return beside or not names.isdisjoint({name, name + TEXT, name + PAGES})


def _split(name: str) -> tuple[str, str]:
    stem, dot, extension = name.rpartition(".")
    return (stem, f".{extension}") if stem and dot and len(extension.encode()) <= 20 else (name, "")


def _cut(text: str, most: int) -> str:
    return text.encode()[:most].decode("utf-8", "ignore").rstrip(". ")
