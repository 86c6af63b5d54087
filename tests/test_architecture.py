"""docs/architecture.md says what is there: the size of each room, where a feature is, what a change touches."""

import re
import statistics
import tomllib

import pytest

from benchmarks.size import ROOT, Room, rooms, statement_lines, total

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FEATURES = (
    "memory",
    "approvals",
    "skills",
    "MCP",
    "exec",
    "trees",
    "schedules",
    "heartbeat",
    "files",
    "secrets",
    "channels",
    "OpenClaw",
)
CHANGES = (
    "messenger",
    "tool",
    "provider",
    "screen",
    "job",
    "command",
    "table",
    "kind of approval",
    "file type",
    "setting",
)
MAX_STATEMENT_LINES, MAX_FILES, MAX_MEDIAN, MAX_FILE = 56_000, 680, 150, 400
OUTDATED = 0.05
"""The share by which a room may differ from the table before somebody has to write it anew."""


def table(heading: str) -> dict[str, list[str]]:
    """The rows below a heading by their first cell."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return {cells[0]: cells[1:] for cells in ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)}


def paths(cell: str) -> list[str]:
    return re.findall(r"`([\w.-]+/[\w./-]*)`", cell)


def is_there(path: str) -> bool:
    """Whether a path leads to a file or folder; `NAME` in it stands for any name."""
    return any(True for _ in ROOT.glob(path.rstrip("/").replace("NAME", "*")))


def test_a_statement_line_is_code_alone() -> None:
    source = '"""Doc."""\n\nimport a\n\n# why\nX = """\ntext\n\nmore"""\n\n\ndef f():\n    """Doc."""\n    return a\n'

    assert statement_lines(source) == 3 + 2


@pytest.fixture(scope="module")
def counted() -> list[Room]:
    """The rooms of the code, which take seconds to count."""
    return rooms()


def test_the_table_of_rooms_is_as_large_as_the_code(counted: list[Room]) -> None:
    shown = {name: int(cells[0].replace(",", "")) for name, cells in table("Size").items()}
    lines = {room.name: room.statement_lines for room in [*counted, total(counted)]}

    assert shown.keys() == lines.keys()
    outdated = [name for name in shown if abs(shown[name] - lines[name]) > max(25, OUTDATED * lines[name])]
    assert outdated == [], "write it anew: python -m benchmarks.size --write"


def test_the_whole_can_be_read(counted: list[Room]) -> None:
    whole = total(counted)

    assert whole.statement_lines <= MAX_STATEMENT_LINES
    assert len(whole.lengths) <= MAX_FILES
    assert statistics.median(whole.lengths) <= MAX_MEDIAN
    assert max(whole.lengths) <= MAX_FILE


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_is_where_the_page_says(feature: str) -> None:
    named = [path for cell in table("Features")[feature] for path in paths(cell)]

    assert len(named) > 2
    assert [path for path in named if not is_there(path)] == []


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_touches_what_is_there(change: str) -> None:
    named = [path for cell in table("Adding something")[f"a {change}"] for path in paths(cell)]

    assert named
    assert [path for path in named if not is_there(path)] == []


def test_every_package_says_what_it_saves_us() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    names = {re.split(r"[\[<>=]", requirement)[0] for requirement in declared}
    explained = {name for packages in table("Packages") for name in re.findall(r"`([\w.-]+)`", packages)}

    assert explained == names


def test_every_http_library_has_its_place() -> None:
    section = PAGE.split("\n## Packages\n")[1]

    assert [name for name in ("aiohttp", "httpx", "httpx2") if f"**{name}**" not in section] == []
