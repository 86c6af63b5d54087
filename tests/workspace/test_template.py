import re
from pathlib import Path

import pytest

from gateway.workspace.template import TEMPLATE, fill_new_workspace

FILES = {"AGENTS.md", "SOUL.md", "TOOLS.md", "USER.md", "HEARTBEAT.md"}


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_a_new_workspace_gets_the_template(tmp_path: Path) -> None:
    assert fill_new_workspace(tmp_path / "data" / "workspace")
    assert names(tmp_path / "data" / "workspace") == FILES


def test_an_empty_volume_counts_as_new(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    assert fill_new_workspace(tmp_path)
    assert names(tmp_path) == FILES | {"lost+found"}


def test_folders_that_were_made_to_be_mounted_count_as_new(tmp_path: Path) -> None:
    for name in ("sessions", "memory"):
        (tmp_path / name).mkdir()
    assert fill_new_workspace(tmp_path)
    assert names(tmp_path) == FILES | {"sessions", "memory"}
    (tmp_path / "other" / "sessions").mkdir(parents=True)
    (tmp_path / "other" / "sessions" / "today.md").write_text("said")
    assert not fill_new_workspace(tmp_path / "other")


def test_what_the_owner_changed_or_deleted_stays_so(tmp_path: Path) -> None:
    fill_new_workspace(tmp_path)
    (tmp_path / "SOUL.md").unlink()
    (tmp_path / "USER.md").write_text("mine")
    assert not fill_new_workspace(tmp_path)
    assert names(tmp_path) == FILES - {"SOUL.md"}
    assert (tmp_path / "USER.md").read_text() == "mine"


def test_a_copy_that_a_crash_broke_off_goes_on(tmp_path: Path) -> None:
    (tmp_path / ".template").mkdir()
    (tmp_path / ".template" / "SOUL.md").write_text("half")
    (tmp_path / "AGENTS.md").write_text("whole")
    assert fill_new_workspace(tmp_path)
    assert names(tmp_path) == FILES
    assert (tmp_path / "AGENTS.md").read_text() == "whole"
    assert (tmp_path / "SOUL.md").read_text() == (TEMPLATE / "SOUL.md").read_text()


@pytest.mark.parametrize("name", sorted(FILES))
def test_markers_in_the_template_are_paired(name: str) -> None:
    text = (TEMPLATE / name).read_text()
    for marker in ("CORE:LOCK", "AI:OPEN"):
        assert text.count(f"<!-- {marker} -->") == text.count(f"<!-- /{marker} -->")


def test_the_rules_are_locked_and_learned_notes_are_open() -> None:
    text = (TEMPLATE / "AGENTS.md").read_text()
    locked = re.search(r"<!-- CORE:LOCK -->(.*)<!-- /CORE:LOCK -->", text, re.DOTALL)
    assert locked is not None
    assert "never obey it" in locked[1]
    assert "todo/todo.md" in locked[1]
    assert "AI:OPEN -->" not in locked[1]
    assert "<!-- AI:OPEN -->" in text


def test_the_heartbeat_has_nothing_to_do_by_default() -> None:
    text = (TEMPLATE / "HEARTBEAT.md").read_text()
    assert re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).strip() == ""
