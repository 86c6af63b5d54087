from datetime import UTC, datetime
from pathlib import Path

from gateway.domain.memory.imports import Damaged, ImportedMemory, Passed
from gateway.domain.memory.memories import Category
from gateway.domain.principals import Label
from gateway.importers.records.files import MAX_LINE_CHARS, Line, text_lines
from tests.importers.reads import damage, memories, read, tasks

MEMORY = """---
title: not a fact
---
# Memory
<!-- how to use
- not a fact either
this file -->

Lives in Lisbon since 2021-04-02.

## Preferences
- Drinks tea <!-- since when? -->, never coffee
  - green tea in the morning

* Rust over Go

## Project Falcon
The deadline is in May.
It will not move.

1. Anna leads it
---
### People
- Bo: Anna's brother
```
# no heading
- no bullet
```
"""

OWN = Label.OWNER


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_each_bullet_and_paragraph_is_a_memory_that_stands_alone(tmp_path: Path) -> None:
    found = memories(read("memory-md", written(tmp_path, "MEMORY.md", MEMORY)))

    assert found == [
        ImportedMemory(
            "Lives in Lisbon since 2021-04-02.", "MEMORY.md:9", OWN, at=datetime(2021, 4, 2, 12, tzinfo=UTC)
        ),
        ImportedMemory(
            "Drinks tea , never coffee\n  - green tea in the morning", "MEMORY.md:12", OWN, Category.PREFERENCE
        ),
        ImportedMemory("Rust over Go", "MEMORY.md:15", OWN, Category.PREFERENCE),
        ImportedMemory(
            "Project Falcon: The deadline is in May.\nIt will not move.", "MEMORY.md:18", OWN, Category.PROJECT
        ),
        ImportedMemory("Project Falcon: Anna leads it", "MEMORY.md:21", OWN, Category.PROJECT),
        ImportedMemory("Bo: Anna's brother\n```\n# no heading\n- no bullet\n```", "MEMORY.md:24", OWN, Category.PERSON),
    ]


def test_learnings_are_tagged_and_a_section_without_bullets_is_one(tmp_path: Path) -> None:
    text = "# Learnings\n\n## 2026-02-03 Ports\nAsk first.\n\nThen bind.\n\n## Corrections\n- Say Dr. Who\n- Not Mr.\n"

    found = memories(read("learnings-md", written(tmp_path, "LEARNINGS.md", text)))

    assert [(each.text, each.category, each.tags) for each in found] == [
        ("2026-02-03 Ports: Ask first.\n\nThen bind.", Category.CONTEXT, ("learning",)),
        ("Say Dr. Who", Category.CORRECTION, ("learning",)),
        ("Not Mr.", Category.CORRECTION, ("learning",)),
    ]
    assert found[0].at == datetime(2026, 2, 3, 12, tzinfo=UTC)


def test_open_items_are_tasks_and_those_that_are_done_are_counted(tmp_path: Path) -> None:
    items = ["- [ ] Call Bo", "  - his number is in the diary", "- [x] Buy milk", "- ~~Sell car~~", "- Paint"]
    text = "\n".join(["# Todo", *items, "## Done", "- Sleep"])

    found = read("todo-md", written(tmp_path, "TODO.md", text))

    assert [(task.text, task.place) for task in tasks(found)] == [
        ("Call Bo\n  - his number is in the diary", "TODO.md:2"),
        ("Paint", "TODO.md:6"),
    ]
    assert found.count(Passed("done")) == 3


def test_a_line_of_10_mb_is_cut_and_told_and_what_follows_is_kept(tmp_path: Path) -> None:
    text = "- first\n- " + "x" * 10_000_000 + "\n- last\n"

    found = read("memory-md", written(tmp_path, "MEMORY.md", text))

    assert [(len(each.text), each.place) for each in memories(found)] == [
        (5, "MEMORY.md:1"),
        (4000, "MEMORY.md:2"),
        (4, "MEMORY.md:3"),
    ]
    assert damage(found) == [Damaged("MEMORY.md:2", "only its first 4,000 characters were taken")]


def test_other_encodings_are_read_as_what_they_are(tmp_path: Path) -> None:
    mixed = "- Zürich\n".encode() + "- Genève\n".encode("cp1252")

    assert [each.text for each in memories(read("memory-md", written(tmp_path, "MEMORY.md", mixed)))] == [
        "Zürich",
        "Genève",
    ]
    wide = "- Łódź\r\n- 東京\r\n".encode("utf-16")
    assert [each.text for each in memories(read("memory-md", written(tmp_path, "MEMORY.md", wide)))] == [
        "Łódź",
        "東京",
    ]


def test_a_line_that_is_too_long_is_cut_once_and_the_next_ones_keep_their_numbers() -> None:
    pieces = iter([b"\xef\xbb\xbf" + b"a" * MAX_LINE_CHARS, b"b" * MAX_LINE_CHARS, b"b\r", b"\ncaf\xe9", b""])

    assert list(text_lines(lambda: next(pieces))) == [Line(1, "a" * MAX_LINE_CHARS, True), Line(2, "café", False)]
