from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.ingest.output import ExtractedFile
from gateway.ingest.reading import read_file


class Found(NamedTuple):
    file: ExtractedFile
    text: str


@pytest.fixture
def found(tmp_path: Path) -> Callable[[bytes, str], Found]:
    """Reads bytes under a name."""

    def run(content: bytes, name: str) -> Found:
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(content)
        target.mkdir()
        file = ExtractedFile.from_json(read_file(str(source), str(target), name, ""))
        assert list(target.glob("part-*")) == []
        return Found(file, (target / file.text).read_text("utf-8") if file.text else "")

    return run
