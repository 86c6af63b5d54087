"""THREATS.md: each row names a mitigation and a test that exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (Path(__file__).parent / "THREATS.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith("|---")
][1:]


def test_there_are_threats() -> None:
    assert len(ROWS) >= 20


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:60] for row in ROWS])
def test_each_threat_has_a_mitigation_and_a_test(row: list[str]) -> None:
    assert len(row) == 4, row
    threat, mitigation, test, _remains = row
    assert threat
    assert mitigation
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", test)
    assert named, f"{threat}: no test is named"
    for file, function in named:
        defined = {
            node.name
            for node in ast.walk(ast.parse((ROOT / file).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert not function or function in defined, f"{file} has no {function}"
