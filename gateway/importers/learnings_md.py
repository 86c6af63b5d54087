"""LEARNINGS.md: each bullet, or each section without bullets, is a memory tagged `learning`."""

from collections.abc import Iterator
from pathlib import Path

from gateway.domain.memory.imports import Record
from gateway.importers import Source
from gateway.importers.records.files import Reader
from gateway.importers.records.texts import facts

TAG = "learning"


def _read(path: Path, reader: Reader) -> Iterator[Record]:
    return facts(path, reader, (TAG,), whole=True)


source = Source("a LEARNINGS.md", lambda path: path.is_file() and path.name.upper() == "LEARNINGS.MD", _read)
