import os
from pathlib import Path

import pytest

from gateway.workspace.files.pages import MOST, Piece
from gateway.workspace.files.tree import Workspace
from gateway.workspace.instructions import MAX_PERSONA_CHARS, Persona


class Reads(Workspace):
    """A workspace that remembers which files were read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.paths: list[str] = []

    def head(self, path: str, limit: int, most: int = MOST) -> Piece | None:
        self.paths.append(path)
        return super().head(path, limit, most)


@pytest.fixture
def workspace(tmp_path: Path) -> Reads:
    return Reads(tmp_path)


def test_each_file_is_its_own_text_and_missing_ones_are_empty(workspace: Reads) -> None:
    (workspace.root / "AGENTS.md").write_text("rules\n")
    (workspace.root / "HEARTBEAT.md").write_text("beat\n")
    assert [file.text for file in Persona(workspace).load()] == ["rules", "", "", "", "beat"]


def test_dot_agents_is_read_where_the_root_has_none(workspace: Reads) -> None:
    (workspace.root / ".agents").mkdir()
    (workspace.root / ".agents/AGENTS.md").write_text("portable")
    (workspace.root / ".agents/SOUL.md").write_text("portable")
    (workspace.root / "SOUL.md").write_text("own")
    found = Persona(workspace).load()
    assert (found.agents.text, found.soul.text) == ("portable", "own")


def test_an_unchanged_file_is_read_once_and_a_changed_one_again(workspace: Reads) -> None:
    file = workspace.root / "AGENTS.md"
    file.write_text("one")
    persona = Persona(workspace)
    assert [persona.load().agents.text, persona.load().agents.text] == ["one", "one"]
    assert workspace.paths == ["AGENTS.md"]
    file.write_text("two")
    os.utime(file, ns=(1, 1))
    assert persona.load().agents.text == "two"


def test_a_members_user_file_is_their_own(workspace: Reads, tmp_path: Path) -> None:
    (tmp_path / "member").mkdir()
    (tmp_path / "member/USER.md").write_text("Bob")
    (tmp_path / "USER.md").write_text("Ada")
    (tmp_path / "SOUL.md").write_text("soul")
    persona = Persona(workspace)
    member = persona.load(Workspace(tmp_path / "member"))
    assert [file.text for file in member] == ["", "soul", "", "Bob", ""]
    assert persona.load().own.text == "Ada"


def test_a_long_file_is_cut_where_one_can_see_it(workspace: Reads) -> None:
    (workspace.root / "SOUL.md").write_text("é" * (MAX_PERSONA_CHARS + 1))
    soul = Persona(workspace).load().soul.text
    assert soul.startswith("é" * MAX_PERSONA_CHARS + "\n")
    assert "SOUL.md is cut here" in soul


def test_a_link_is_not_followed_and_a_folder_does_not_break_the_turn(workspace: Reads, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "AGENTS.md").symlink_to(tmp_path / "secret")
    (tmp_path / "TOOLS.md").mkdir()
    found = Persona(workspace).load()
    assert found.agents.text.startswith("[AGENTS.md could not be read: ")
    assert found.tools.text.startswith("[TOOLS.md could not be read: ")


def test_a_file_too_large_for_a_prompt_is_told_and_not_hashed(workspace: Reads) -> None:
    (workspace.root / "AGENTS.md").touch()
    os.truncate(workspace.root / "AGENTS.md", 2**40)
    found = Persona(workspace).load()
    assert found.agents.text.startswith("[AGENTS.md could not be read: ")
    assert found.agents.sha256 == ""
