"""docs/mission.md answers every document, and what it shows as proof exists."""

import re
from pathlib import Path

import pytest

from tests.test_promises import ROOT, names_in

PAGE = (ROOT / "docs" / "mission.md").read_text(encoding="utf-8")
DOCUMENTS = ("SupaClaw PRD and architecture", "Claw gateway features", "SupaSwarm PRD", "OpenClaw integration")


def rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2:]]


ANSWERS = [pytest.param(row, id=row[0][:40]) for heading in DOCUMENTS for row in rows(heading)]


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_answer_is_shown_by_something_that_exists(answer: list[str]) -> None:
    assert len(answer) == 4
    shown = answer[3]
    tests = re.findall(r"`(tests/[^`]+)`", shown)
    assert tests or "](" in shown
    for named in tests:
        file, _, name = named.partition("::")
        assert (ROOT / file).is_file(), named
        assert not name or named in set(names_in(ROOT / Path(file))), named


def test_what_is_not_yet_there_is_said_at_the_end() -> None:
    assert len(PAGE.split("\n## Not yet\n")[1].split()) > 20
