"""TODO.md: each open item of the first level is a task, with the lines below it; finished items are left out."""

import re
from collections.abc import Iterator
from pathlib import Path

from gateway.domain.memory.imports import ImportedTask, Passed, Record
from gateway.importers import Source, named
from gateway.importers.records.files import Reader
from gateway.importers.records.texts import blocks

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
            yield from block.damage(place)


source = Source("a TODO.md", named("TODO.MD"), _read)
