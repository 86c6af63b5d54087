"""Notes in Markdown: memories by bullet and paragraph, and open items of lists of things to do."""

import re
from collections.abc import Iterator
from pathlib import Path

from gateway.domain.memory.imports import LEARNING, ImportedTask, Passed, Record
from gateway.importers import Source, named
from gateway.importers.records.files import Reader
from gateway.importers.records.texts import blocks, facts

_BOX = re.compile(r"\[(.)\]\s+")
_DONE = re.compile(r"done|completed?|finished|archived?|erledigt|fertig", re.IGNORECASE)


def _notes(path: Path, reader: Reader) -> Iterator[Record]:
    """Yield the facts of a file about something, which its name says."""
    return facts(reader.lines(path), path.name, about=path.stem.replace("-", " ").replace("_", " "))


def _learnings(path: Path, reader: Reader) -> Iterator[Record]:
    return facts(reader.lines(path), path.name, LEARNING, whole=True)


def _tasks(path: Path, reader: Reader) -> Iterator[Record]:
    """Yield the open items of the first level, each with the lines below it."""
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


SOURCES = {
    "memory-md": Source("a MEMORY.md", named("MEMORY.MD"), lambda path, reader: facts(reader.lines(path), path.name)),
    "notes-md": Source("a USER.md, or any other notes", named("USER.MD"), _notes),
    "learnings-md": Source("a LEARNINGS.md", named("LEARNINGS.MD"), _learnings),
    "todo-md": Source("a TODO.md", named("TODO.MD"), _tasks),
}
