"""Files come into their places whole, and over nothing but what they were meant to replace."""

import hashlib
import io
import os
from pathlib import Path

import pytest

from gateway.domain.files import FileContent
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.sync.folder import FileChanged, copy_out, drop_file, place_file
from gateway.workspace.sync.plan import Drop, Pull


def content(text: str, *, executable: bool = False) -> FileContent:
    return FileContent(hashlib.sha256(text.encode()).hexdigest(), len(text), executable)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "staged").write_text("new")
    return tmp_path / "root"


def land(
    root: Path, path: str, over: str | None = None, beside: str | None = None, *, executable: bool = False
) -> None:
    pull = Pull(path, content("new", executable=executable), content(over) if over is not None else None, beside)
    place_file(root, pull, root.parent / "staged")


def test_a_new_file_and_its_folders_are_made(root: Path) -> None:
    land(root, "a/b/c.md")
    assert (root / "a/b/c.md").read_text() == "new"
    assert os.listdir(root / "a/b") == ["c.md"]


def test_what_is_there_and_was_not_expected_stays(root: Path) -> None:
    (root / "f").write_text("mine")
    for over in (None, "old"):
        with pytest.raises(FileChanged):
            land(root, "f", over)
    with pytest.raises(FileChanged):
        land(root, "gone", "old")
    with pytest.raises(FileChanged):
        drop_file(root, Drop("f", content("old")))
    assert {name: (root / name).read_text() for name in os.listdir(root)} == {"f": "mine"}


def test_the_old_one_is_kept_beside_and_its_rights_stay(root: Path) -> None:
    (root / "f").write_text("old")
    (root / "f").chmod(0o640)
    land(root, "f", "old", "f.conflict", executable=True)
    assert {name: (root / name).read_text() for name in os.listdir(root)} == {"f": "new", "f.conflict": "old"}
    assert (root / "f").stat().st_mode & 0o777 == 0o750


def test_a_name_beside_that_is_taken_loses_nothing(root: Path) -> None:
    (root / "f").write_text("old")
    (root / "f.conflict").write_text("another")
    with pytest.raises(FileChanged):
        land(root, "f", "old", "f.conflict")
    assert {name: (root / name).read_text() for name in os.listdir(root)} == {"f": "old", "f.conflict": "another"}


def test_no_link_is_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("old")
    (root / "to").symlink_to(tmp_path / "outside")
    (root / "link").symlink_to(tmp_path / "outside" / "f")
    for path, over in (("to/f", "old"), ("to/g", None), ("link", "old"), ("link", None)):
        with pytest.raises(WorkspaceError):
            land(root, path, over)
    with pytest.raises(WorkspaceError):
        drop_file(root, Drop("to/f", content("old")))
    with pytest.raises(WorkspaceError):
        copy_out(root, "to/f", content("old"), io.BytesIO())
    assert {name: (tmp_path / "outside" / name).read_text() for name in os.listdir(tmp_path / "outside")} == {
        "f": "old"
    }


def test_a_file_that_goes_takes_its_empty_folder_along(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "f").write_text("old")
    drop_file(root, Drop("a/f", content("old")))
    assert os.listdir(root) == []


def test_only_the_content_that_was_seen_leaves(root: Path) -> None:
    (root / "f").write_text("old")
    copied = io.BytesIO()
    copy_out(root, "f", content("old"), copied)
    assert copied.getvalue() == b"old"
    with pytest.raises(FileChanged):
        copy_out(root, "f", content("other"), io.BytesIO())
