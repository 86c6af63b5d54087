import sys
from pathlib import Path

import pytest

from gateway import commands
from gateway.domain.errors import OwnerMustAct


def test_every_file_is_a_command_of_its_own_name_with_a_summary() -> None:
    folder = Path(commands.__file__).parent
    found = commands.discover()
    assert set(found) == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert all(name == command.name and command.summary for name, command in found.items())


@pytest.mark.parametrize("source", ["import no_such_module", "command = None", ""])
def test_a_file_that_is_no_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    (tmp_path / "broken.py").write_text(source)
    monkeypatch.setattr(commands, "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "gateway.commands.broken", raising=False)
    with pytest.raises(OwnerMustAct, match=r"gateway\.commands\.broken"):
        commands.discover()
