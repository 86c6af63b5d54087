"""TODO.md: each open item of the first level is a task, with what is below it; items that are done are left out."""

import re
from collections.abc import Iterator
from pathlib import Path

from gateway.domain.memory.imports import Damaged, ImportedTask, Passed, Record
from gateway.importers import Source
from gateway.importers.records.files import Reader
from gateway.importers.records.texts import MAX_BLOCK_CHARS, blocks

_BOX = re.compile(r"\[(.)\]\s+")
_DONE = re.compile(r"done|completed?|finished|archived?|erledigt|fertig", re.IGNORECASE)


def _read(path: Path, reader: Reader) -> Iterator[Record]:
    for block in blocks(reader.lines(path)):
        if not block.bullet:
            continue
        place, box = f"{path.name}:{block.line}", _BOX.match(block.text)
        done = box[1] != " " if box else any(_DONE.match(heading) for heading in block.headings)
        text = block.text[box.end() :] if box else block.text
        if done or text.startswith("~~"):
            yield Passed("done")
        elif text:
            yield ImportedTask(text, place)
            if block.cut:
                yield Damaged(place, f"only its first {MAX_BLOCK_CHARS:,} characters were taken")


source = Source("a TODO.md", lambda path: path.is_file() and path.name.upper() == "TODO.MD", _read)
