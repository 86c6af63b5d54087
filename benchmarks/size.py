"""The size of the program: statement lines and files of each room, as Markdown.

`python -m benchmarks.size` prints the table; `--write` puts it into docs/architecture.md. A statement line is a line of
code that is not blank and no part of a comment, a docstring or an import.
"""

import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
PROGRAM = ("gateway", "channels", "integrations")
_TABLE = re.compile(r"^\| room \|.*?(?=\n\n)", re.DOTALL | re.MULTILINE)
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True, slots=True)
class Room:
    """A floor of the gateway, the channels or the integrations, with the lengths of its files in raw lines."""

    name: str
    statement_lines: int
    lengths: tuple[int, ...]


def statement_lines(source: str) -> int:
    """The number of statement lines in the text of a module."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in _left_out(ast.parse(source)):
        lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    blank = {number for number, line in enumerate(source.splitlines(), 1) if not line.strip()}
    return len(lines - blank)


def _left_out(tree: ast.Module) -> Iterator[ast.stmt]:
    """Imports and docstrings, those of attributes included: every statement that is a string alone."""
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                yield node


def rooms(root: Path = ROOT) -> list[Room]:
    """Each floor of `gateway`, its files at the top, `channels` and `integrations`, in the order of their names."""
    files: dict[str, list[str]] = {}
    for top in PROGRAM:
        for path in sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).parts
            name = "/".join(parts[:2]) if top == "gateway" and len(parts) > 2 else top
            files.setdefault(name, []).append(path.read_text(encoding="utf-8"))
    return [
        Room(name, sum(map(statement_lines, texts)), tuple(len(text.splitlines()) for text in texts))
        for name, texts in sorted(files.items())
    ]


def total(found: list[Room]) -> Room:
    """All rooms as one."""
    return Room(
        "**all**", sum(room.statement_lines for room in found), tuple(n for room in found for n in room.lengths)
    )


def table(found: list[Room]) -> str:
    """The rooms and their sum as a Markdown table."""
    rows = ["| room | statement lines | files | median file | longest file |", "|---|---|---|---|---|"]
    for room in [*found, total(found)]:
        median, longest = statistics.median(room.lengths), max(room.lengths)
        rows.append(f"| {room.name} | {room.statement_lines:,} | {len(room.lengths)} | {median:.0f} | {longest} |")
    return "\n".join(rows)


if __name__ == "__main__":
    printed = table(rooms())
    if "--write" in sys.argv:
        PAGE.write_text(_TABLE.sub(printed, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(printed)
