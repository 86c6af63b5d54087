"""LEARNINGS.md: each bullet, or each section without bullets, is a memory tagged `learning`."""

from collections.abc import Iterator
from pathlib import Path

from gateway.domain.memory.imports import Record
from gateway.importers import Source, named
from gateway.importers.records.files import Reader
from gateway.importers.records.texts import facts

TAG = "learning"


def _read(path: Path, reader: Reader) -> Iterator[Record]:
    return facts(path, reader, (TAG,), whole=True)


source = Source("a LEARNINGS.md", named("LEARNINGS.MD"), _read)
