"""Docstrings and comments follow docs/style.md, as far as a program can tell."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for top in ("gateway", "channels", "integrations") for path in (ROOT / top).rglob("*.py"))
CLAUSE = re.compile(r"(What|Who|Whose|Whoever|Whatever)\b")
COINED = re.compile(r"\b(whoever|mend|mends|mended|mending)\b", re.IGNORECASE)


def docstrings(source: str) -> Iterator[str]:
    """Strings that are statements: of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text.strip()


def comments(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@pytest.mark.parametrize(
    ("source", "found"),
    [('"""What it is."""', True), ('x = 1\n"""Its size."""', False), ("def f():\n    'Who.'", True)],
)
def test_a_clause_in_place_of_a_noun_is_seen(source: str, found: bool) -> None:
    assert any(CLAUSE.match(text) for text in docstrings(source)) == found


def test_no_docstring_begins_with_what_or_who() -> None:
    texts = ((path, text) for path in FILES for text in docstrings(path.read_text(encoding="utf-8")))

    assert [(path.name, text) for path, text in texts if CLAUSE.match(text)] == []


def test_docstrings_and_comments_use_plain_words() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in FILES}
    texts = ((path, text) for path, source in sources.items() for text in (*docstrings(source), *comments(source)))

    assert [(path.name, text) for path, text in texts if COINED.search(text)] == []
