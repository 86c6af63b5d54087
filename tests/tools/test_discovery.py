from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.tools import Services, discover
from gateway.workspace.files.tree import Workspace


def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> str:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    (tmp_path / name / "weather.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_every_family_of_the_gateway_offers_described_tools(tmp_path: Path) -> None:
    services = Services(Workspace(tmp_path))
    tools = [tool for family in discover() for tool in family(services)]
    assert {"list_files", "read_file", "write_file", "edit_file"} <= {tool.name for tool in tools}
    assert all(tool.description.endswith(".") for tool in tools)


def test_a_file_is_all_a_tool_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [family] = discover(package(tmp_path, monkeypatch, "good_tools", "def tools(services): return ()"))
    assert family(Services(Workspace(tmp_path))) == ()


@pytest.mark.parametrize(
    ("name", "source", "told"),
    [
        ("broken_tools", "import no_such_sdk", "No module named 'no_such_sdk'"),
        ("failing_tools", "1 / 0", "ZeroDivisionError"),
        ("empty_tools", "", "no attribute 'tools'"),
        ("odd_tools", "tools = 3", "`tools` is not a Callable"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, told: str
) -> None:
    with pytest.raises(OwnerMustAct, match=rf"{name}\.weather.*{told}"):
        discover(package(tmp_path, monkeypatch, name, source))
