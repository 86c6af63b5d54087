"""Whatever walks a workspace ends, however deep it is and whatever lies in it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.app.storage.backup import archive_at
from gateway.flow.labels import _hashes
from gateway.workspace.files.access import ENTRY_BYTES, size_of
from gateway.workspace.files.disk import SPARSE_BYTES
from gateway.workspace.journal.files import sessions


def deepen(folder: Path, levels: int = 1500) -> None:
    """Folders named 1, each in the one before."""
    folder.mkdir(parents=True)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("1", dir_fd=here)
        below = os.open("1", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A workspace; removed by a program that knows no depth."""
    yield tmp_path / "workspace"
    subprocess.run(["rm", "-rf", str(tmp_path / "workspace")], check=True)


@pytest.fixture
def deep(root: Path) -> Path:
    deepen(root / "sessions")
    deepen(root / "notes")
    (root / "notes" / "a.md").write_text("own words")
    return root


def test_quota(deep: Path) -> None:
    assert size_of(deep) > 500 * ENTRY_BYTES


def test_journal(deep: Path) -> None:
    assert list(sessions(deep)) == []


def test_vouching(deep: Path) -> None:
    assert list(_hashes(deep)) == ["notes/a.md"]


def test_backup(deep: Path, tmp_path: Path) -> None:
    with archive_at(tmp_path / "backup.tar.gz") as archive:
        archive.add_tree(deep, "workspace")
    assert "workspace/notes/a.md" in {member.name for member in archive.members}
    assert archive.skipped == 2


def test_files_of_holes_count_as_what_they_take_and_are_not_backed_up(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    for number in range(100):
        (root / f"{number}.img").touch()
        os.truncate(root / f"{number}.img", 2**30)
    assert size_of(root) == 100 * ENTRY_BYTES
    with archive_at(tmp_path / "backup.tar.gz") as archive:
        archive.add_tree(root, "workspace")
    assert (archive.members, archive.skipped) == ([], 100)


def test_a_small_file_of_holes_is_backed_up(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    (root / "small.img").touch()
    os.truncate(root / "small.img", SPARSE_BYTES - 1)
    with archive_at(tmp_path / "backup.tar.gz") as archive:
        archive.add_tree(root, "workspace")
    assert [member.size for member in archive.members] == [SPARSE_BYTES - 1]
