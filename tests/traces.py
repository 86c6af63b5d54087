"""Where words are left that an erasure had to remove: files and checkpoints of a data folder."""

from collections.abc import Collection, Iterator
from pathlib import Path

from dulwich.object_store import DiskObjectStore

WORDS = "quagga"
IN_ROWS = r"quagg|\m7741\M"
"""The same as a pattern of Postgres, with the number that is said beside it; times of rows have numbers, too."""


def in_files(data: Path, but: Collection[str] = (), words: str = WORDS) -> Iterator[str]:
    """Files with the words in them or in their names, outside of the folders `but`."""
    for path in data.rglob("*"):
        if path.relative_to(data).parts[0] in but:
            continue
        inside = path.read_bytes().lower() if path.is_file() else b""
        if any(word in inside for word in (words.encode(), words.encode("utf-16-le"))) or words in path.name:
            yield str(path.relative_to(data))


def in_checkpoints(folder: Path, words: str = WORDS) -> Iterator[str]:
    """Objects with the words."""
    objects = DiskObjectStore(folder / "objects")
    for id in objects:
        if words.encode() in objects[id].as_raw_string().lower():
            yield id.decode()
    objects.close()
