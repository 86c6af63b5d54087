import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.workspace.journal.key import journal_key


def test_it_is_made_once_for_the_gateway_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "journal"
    key = journal_key(path)
    assert len(key) == 32
    assert journal_key(path) == key
    assert (os.stat(path).st_mode & 0o777, os.stat(path.parent).st_mode & 0o777) == (0o600, 0o700)
    assert os.listdir(path.parent) == ["journal"]


def test_whoever_asks_first_all_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "journal"
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: journal_key(path), range(16)))) == 1


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_damaged_one_is_the_owners_to_mend(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(OwnerMustAct, match="restore it from a backup"):
        journal_key(path)
    assert path.read_bytes() == content
