"""Facts from Markdown: what each block of a file of notes says, in words that stand alone."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from gateway.domain.memory.imports import Damaged, ImportedMemory
from gateway.domain.memory.memories import Category
from gateway.importers.reading.files import Reader
from gateway.importers.reading.markdown import MAX_BLOCK, Block, blocks

CATEGORIES = {
    "preference": Category.PREFERENCE,
    "like": Category.PREFERENCE,
    "decision": Category.DECISION,
    "fact": Category.FACT,
    "project": Category.PROJECT,
    "people": Category.PERSON,
    "person": Category.PERSON,
    "contact": Category.PERSON,
    "famil": Category.PERSON,
    "correction": Category.CORRECTION,
    "mistake": Category.CORRECTION,
}
"""What a heading begins a word with, and the category of what is below it."""

_SAYS_NOTHING = re.compile(
    "active|and|context|current|general|important|key|learnings?|long|memor(y|ies)|misc|my|notes?|of|open|other|term|the|user"
)
"""Words of headings that need not be repeated with each fact."""


def facts(
    path: Path, reader: Reader, tags: tuple[str, ...] = (), *, whole: bool = False
) -> Iterator[ImportedMemory | Damaged]:
    """Yield a memory for each block; with `whole` one for each section that has no bullets."""
    for _, section in groupby(blocks(reader.lines(path)), key=lambda block: block.headings):
        found = list(section)
        for block in [_joined(found)] if whole and not any(each.bullet for each in found) else found:
            place = f"{path.name}:{block.line}"
            yield ImportedMemory(_worded(block), place, _category(block.headings), tags, block.day)
            if block.cut:
                yield Damaged(place, f"only its first {MAX_BLOCK:,} characters were taken")


def _joined(found: list[Block]) -> Block:
    lines = [line for block in found for line in (*block.lines, "")]
    text = "\n".join(lines).strip()
    cut = len(text) > MAX_BLOCK or any(block.cut for block in found)
    return Block(found[0].line, found[0].headings, bullet=False, lines=[text[:MAX_BLOCK]], cut=cut)


def _worded(block: Block) -> str:
    """Its text, behind the heading it needs to be understood."""
    about = block.headings[-1] if len(block.headings) > 1 else ""
    says = any(not _SAYS_NOTHING.fullmatch(word) and not _category_of(word) for word in _words(about))
    return f"{about}: {block.text}" if says else block.text


def _category(headings: tuple[str, ...]) -> Category:
    """What the nearest heading that names one says."""
    named = (_category_of(word) for heading in reversed(headings) for word in _words(heading))
    return next((category for category in named if category), Category.CONTEXT)


def _category_of(word: str) -> Category | None:
    return next((category for beginning, category in CATEGORIES.items() if word.startswith(beginning)), None)


def _words(heading: str) -> list[str]:
    return re.findall(r"\w+", heading.casefold())
