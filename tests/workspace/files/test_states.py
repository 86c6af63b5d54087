import hashlib
from pathlib import Path

import pytest

from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.states import measure
from gateway.workspace.files.tree import Written


def refusal(root: Path, path: str, most: int = 10_000_000) -> str:
    with pytest.raises(WorkspaceError) as refused:
        measure(root, path, most)
    return refused.value.code


def test_a_file_is_measured_whole(tmp_path: Path) -> None:
    data = b"0123456789" * 250_000
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/big.bin").write_bytes(data)
    measured = measure(tmp_path, "./notes/big.bin", len(data))
    assert measured == Written("notes/big.bin", len(data), hashlib.sha256(data).hexdigest())


def test_one_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(
        WorkspaceError, match=r"^huge has 1000000\.0 MB; the limit for sending there is 50 MB"
    ) as refused:
        measure(tmp_path, "huge", 50_000_000)
    assert refused.value.code == "too_large"


def test_nothing_outside_and_nothing_but_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("no")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").mkdir()
    assert refusal(root, "../secret") == "bad_path"
    assert refusal(root, str(tmp_path / "secret")) == "bad_path"
    assert refusal(root, "link") == "not_a_file"
    assert refusal(root, "folder") == "not_a_file"
    assert refusal(root, "missing") == "not_found"
