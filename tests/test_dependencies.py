"""Every package that the program imports is declared, and those whose internals it uses are bounded."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OURS = ("gateway", "channels")
OPTIONAL = {"magic": "neonize imports it; channels/whatsapp/sdk.py replaces it where libmagic is missing"}
TYPES = {"_typeshed"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED = {canonicalize_name(each.name): each for each in map(Requirement, PROJECT["dependencies"])}


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a file imports, also by `import_module("NAME")`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.Call(
                func=ast.Name("import_module") | ast.Attribute(attr="import_module"), args=[ast.Constant(str(module))]
            ):
                yield module


def foreign() -> dict[str, Path]:
    """The top-level modules that are not ours, each with a file that imports it."""
    found = {
        name.partition(".")[0]: path
        for folder in OURS
        for path in (ROOT / folder).rglob("*.py")
        for name in imported(ast.parse(path.read_bytes()))
    }
    apart = sys.stdlib_module_names | {*OURS, *OPTIONAL, *TYPES}
    return {name: path.relative_to(ROOT) for name, path in found.items() if name not in apart}


def test_every_package_that_is_imported_is_declared() -> None:
    providers = packages_distributions()
    missing = {
        name: str(path)
        for name, path in foreign().items()
        if not {canonicalize_name(each) for each in providers.get(name, [name])} & DECLARED.keys()
    }
    assert missing == {}


@pytest.mark.parametrize("package", ["fastapi", "h11", "starlette", "uvicorn"])
def test_a_package_whose_internals_are_used_has_an_upper_bound(package: str) -> None:
    assert any(each.operator == "<" for each in DECLARED[canonicalize_name(package)].specifier)
