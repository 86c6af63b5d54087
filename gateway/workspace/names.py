"""Names of files that came from outside: readable, harmless, and clear of what is kept beside other files."""

import mimetypes
import re
import unicodedata
from collections.abc import Iterator, Set

TEXT, PAGES = ".txt", ".pages"
"""What the text of a file and the folder of its pages are named, behind its own name."""
LONGEST = 150
"""Bytes; what is kept beside a file has a longer name, and a path is bounded."""
MOST_ALIKE = 10_000

_SEPARATORS = re.compile(r"[/\\]")
_UNSAFE = re.compile(r'[<>:"|?*\[\]`]')


def safe_name(name: str, mime: str = "") -> str:
    """The last part of a name without what is invisible or means something to a system; never empty, never hidden."""
    last = _SEPARATORS.split(unicodedata.normalize("NFC", name).rstrip("/\\"))[-1]
    seen = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in last)
    clean = " ".join(_UNSAFE.sub("_", seen).split()).strip(". ")
    if not clean:
        clean = f"file{mimetypes.guess_extension(mime) or ''}"
    stem, extension = _split(clean)
    return f"{_cut(stem, LONGEST - len(extension.encode()))}{extension}"


def candidates(name: str) -> Iterator[str]:
    """The name, then the same with -2, -3 … before its extension."""
    yield name
    stem, extension = _split(name)
    for number in range(2, MOST_ALIKE):
        yield f"{stem}-{number}{extension}"


def taken(name: str, names: Set[str]) -> bool:
    """Whether the name, or what would be kept beside it, is in the folder already, or is kept beside another file."""
    beside = any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in (TEXT, PAGES))
    return beside or not names.isdisjoint({name, name + TEXT, name + PAGES})


def _split(name: str) -> tuple[str, str]:
    stem, dot, extension = name.rpartition(".")
    return (stem, f".{extension}") if stem and dot and len(extension.encode()) <= 20 else (name, "")


def _cut(text: str, most: int) -> str:
    return text.encode()[:most].decode("utf-8", "ignore").rstrip(". ")
