"""Files of an older template in a workspace that goes on with a newer one."""

import errno
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.domain.errors import OwnerMustAct
from gateway.workspace.renewal import Renewal, merge, renew, renewals
from gateway.workspace.template import RELEASED, TEMPLATE, fill_new_workspace
from gateway.workspace.tree import Workspace

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

    await renew(workspace, template)

    assert text(workspace) == THIRD
    assert list(renewals(workspace, template)) == []


async def test_it_may_lie_in_the_folder_for_agents(workspace: Workspace, template: Path) -> None:
    put(workspace, FIRST, ".agents/AGENTS.md")

    await renew(workspace, template)

    assert text(workspace, ".agents/AGENTS.md") == THIRD


async def test_what_was_deleted_stays_away(workspace: Workspace, template: Path) -> None:
    await renew(workspace, template)

    assert list(workspace.root.iterdir()) == []


@pytest.mark.parametrize("before", [FIRST, SECOND])
async def test_what_was_edited_stays_until_it_is_merged(workspace: Workspace, template: Path, before: str) -> None:
    put(workspace, before + OWN)

    await renew(workspace, template)

    assert text(workspace) == before + OWN
    renewal = the_renewal(workspace, template)
    assert "+- Look first.\n" in renewal.diff()
    assert OWN not in [line[1:] for line in renewal.diff().splitlines(keepends=True) if line[0] in "+-"]
    await merge(workspace, renewal)

    assert text(workspace) == THIRD + OWN
    assert list(renewals(workspace, template)) == []


async def test_the_same_lines_are_the_owners_to_merge(workspace: Workspace, template: Path) -> None:
    (template / RELEASED / "2" / "AGENTS.md").unlink()
    put(workspace, mine := FIRST.replace("Be short.", "Be very long."))
    renewal = the_renewal(workspace, template)

    assert renewal.merged is None
    assert "-- Be short.\n+- Be short, or ask.\n" in renewal.diff()
    with pytest.raises(OwnerMustAct, match=r"the same lines of AGENTS\.md"):
        await merge(workspace, renewal)
    assert text(workspace) == mine


@pytest.mark.parametrize("mine", ["Only my own rules.\n", THIRD + OWN, OWN + THIRD, ""])
def test_what_is_somebodys_own_or_new_enough_is_not_touched(workspace: Workspace, template: Path, mine: str) -> None:
    put(workspace, mine)

    assert list(renewals(workspace, template)) == []


async def test_a_link_is_not_followed(workspace: Workspace, template: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.md").write_text(FIRST)
    (workspace.root / "AGENTS.md").symlink_to(tmp_path / "elsewhere.md")

    await renew(workspace, template)

    assert (tmp_path / "elsewhere.md").read_text() == FIRST


async def test_what_cannot_be_written_does_not_keep_the_gateway_from_starting(
    workspace: Workspace, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(workspace, FIRST)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gateway.workspace.tree.replace_file", full)
    with capture_logs() as logs:
        await renew(workspace, template)

    assert [(line["event"], line["file"]) for line in logs] == [("workspace.not_renewed", "AGENTS.md")]
    assert text(workspace) == FIRST


def test_every_kept_version_is_one_of_a_file_of_the_template() -> None:
    kept = [path.relative_to(TEMPLATE / RELEASED) for path in (TEMPLATE / RELEASED).rglob("*") if path.is_file()]

    assert kept
    for path in kept:
        number, *rest = path.parts
        assert number.isdecimal()
        assert (TEMPLATE / RELEASED / path).read_text() != TEMPLATE.joinpath(*rest).read_text()
