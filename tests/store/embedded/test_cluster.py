"""What the running server shows of its cluster is in test_postgres.py."""

import os
from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.store.embedded.cluster import ensure_cluster, opened, reach, read_passwords


def test_a_set_up_that_fails_says_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.embedded.cluster._initdb_arguments", lambda _: ["--encoding=nonsense"])
    with pytest.raises(OwnerMustAct, match=r"cannot be set up in .*: error: .*"):
        ensure_cluster(tmp_path / "data" / "postgres", tmp_path / "data" / "keys")
    assert os.listdir(tmp_path / "data") == ["keys"]


def test_a_disk_that_takes_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.embedded.cluster._SETTINGS", tmp_path / "missing")
    with pytest.raises(OwnerMustAct, match=r"cannot be set up in .*No such file"):
        ensure_cluster(tmp_path / "data" / "postgres", tmp_path / "data" / "keys")
    assert os.listdir(tmp_path / "data") == ["keys"]


def test_a_child_reaches_a_folder_by_its_descriptor_where_the_system_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as descriptor:
        assert Path(reach(tmp_path, descriptor)).samefile(tmp_path)
        monkeypatch.setattr(Path, "exists", lambda _: False)
        assert reach(tmp_path, descriptor) == str(tmp_path)


def test_passwords_are_made_once(tmp_path: Path) -> None:
    first = read_passwords(tmp_path / "keys", make=True)
    assert read_passwords(tmp_path / "keys") == first
    assert len(set(first.values())) == 3
    assert len(os.listdir(tmp_path / "keys")) == 3
