import errno
import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.domain.errors import OwnerMustAct
from gateway.workspace.files.tree import Workspace
from gateway.workspace.template import (
    RELEASED,
    TEMPLATE,
    Renewal,
    fill_new_workspace,
    merge_renewal,
    renew_files,
    renewals,
)

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


FIRST = "# Rules\n\n- Be kind.\n- Be short.\n\n## Learned\n"
SECOND = "# Rules\n\n- Be kind.\n- Be short, or ask.\n\n## Learned\n"
THIRD = "# Rules\n\n- Be kind.\n- Be short, or ask.\n- Look first.\n\n## Learned\n"
OWN = "- Ada likes tables.\n"


@pytest.fixture
def template(tmp_path: Path) -> Path:
    template = tmp_path / "template"
    versions = {"AGENTS.md": THIRD, f"{RELEASED}/1/AGENTS.md": FIRST, f"{RELEASED}/2/AGENTS.md": SECOND}
    for name, text in {**versions, "SOUL.md": "calm\n", "skills/tea/SKILL.md": "Boil water.\n"}.items():
        path = template / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return template


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "workspace").mkdir()
    return Workspace(tmp_path / "workspace")


def text(workspace: Workspace, path: str = "AGENTS.md") -> str:
    return (workspace.root / path).read_text()


def put(workspace: Workspace, content: str, path: str = "AGENTS.md") -> None:
    (workspace.root / path).parent.mkdir(exist_ok=True)
    (workspace.root / path).write_text(content)


def the_renewal(workspace: Workspace, template: Path) -> Renewal:
    [renewal] = renewals(workspace, template)
    return renewal


def test_a_new_workspace_gets_folders_too_and_no_earlier_versions(workspace: Workspace, template: Path) -> None:
    fill_new_workspace(workspace.root, template)

    files = {str(path.relative_to(workspace.root)) for path in workspace.root.rglob("*") if path.is_file()}
    assert files == {"AGENTS.md", "SOUL.md", "skills/tea/SKILL.md"}
    assert list(renewals(workspace, template)) == []


@pytest.mark.parametrize("before", [FIRST, SECOND])
async def test_what_nobody_edited_is_replaced(workspace: Workspace, template: Path, before: str) -> None:
    put(workspace, before)

    await renew_files(workspace, template)

    assert text(workspace) == THIRD
    assert list(renewals(workspace, template)) == []


async def test_it_may_lie_in_the_folder_for_agents(workspace: Workspace, template: Path) -> None:
    put(workspace, FIRST, ".agents/AGENTS.md")

    await renew_files(workspace, template)

    assert text(workspace, ".agents/AGENTS.md") == THIRD


async def test_what_was_deleted_stays_away(workspace: Workspace, template: Path) -> None:
    await renew_files(workspace, template)

    assert list(workspace.root.iterdir()) == []


@pytest.mark.parametrize("before", [FIRST, SECOND])
async def test_what_was_edited_stays_until_it_is_merged(workspace: Workspace, template: Path, before: str) -> None:
    put(workspace, before + OWN)

    await renew_files(workspace, template)

    assert text(workspace) == before + OWN
    renewal = the_renewal(workspace, template)
    assert "+- Look first.\n" in renewal.diff()
    assert OWN not in [line[1:] for line in renewal.diff().splitlines(keepends=True) if line[0] in "+-"]
    await merge_renewal(workspace, renewal)

    assert text(workspace) == THIRD + OWN
    assert list(renewals(workspace, template)) == []


async def test_the_same_lines_are_the_owners_to_merge(workspace: Workspace, template: Path) -> None:
    (template / RELEASED / "2" / "AGENTS.md").unlink()
    put(workspace, mine := FIRST.replace("Be short.", "Be very long."))
    renewal = the_renewal(workspace, template)

    assert renewal.merged is None
    assert "-- Be short.\n+- Be short, or ask.\n" in renewal.diff()
    with pytest.raises(OwnerMustAct, match=r"the same lines of AGENTS\.md"):
        await merge_renewal(workspace, renewal)
    assert text(workspace) == mine


@pytest.mark.parametrize("mine", ["Only my own rules.\n", THIRD + OWN, OWN + THIRD, ""])
def test_what_is_somebodys_own_or_new_enough_is_not_touched(workspace: Workspace, template: Path, mine: str) -> None:
    put(workspace, mine)

    assert list(renewals(workspace, template)) == []


async def test_a_link_is_not_followed(workspace: Workspace, template: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.md").write_text(FIRST)
    (workspace.root / "AGENTS.md").symlink_to(tmp_path / "elsewhere.md")

    await renew_files(workspace, template)

    assert (tmp_path / "elsewhere.md").read_text() == FIRST


async def test_what_cannot_be_written_does_not_keep_the_gateway_from_starting(
    workspace: Workspace, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(workspace, FIRST)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gateway.workspace.files.tree.replace_file", full)
    with capture_logs() as logs:
        await renew_files(workspace, template)

    assert [(line["event"], line["file"]) for line in logs] == [("workspace.not_renewed", "AGENTS.md")]
    assert text(workspace) == FIRST


def test_every_kept_version_is_one_of_a_file_of_the_template() -> None:
    kept = [path.relative_to(TEMPLATE / RELEASED) for path in (TEMPLATE / RELEASED).rglob("*") if path.is_file()]

    assert kept
    for path in kept:
        number, *rest = path.parts
        assert number.isdecimal()
        assert (TEMPLATE / RELEASED / path).read_text() != TEMPLATE.joinpath(*rest).read_text()
