import tempfile
from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.store.embedded.sockets import socket_folder


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    return folder


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_short_path_is_taken_as_it_is() -> None:
    assert socket_folder(Path("/data/postgres/socket")) == Path("/data/postgres/socket")


def test_a_long_path_gets_a_short_way_in_always_the_same(deep: Path, temp: Path) -> None:
    link = socket_folder(deep)
    assert len(str(link.relative_to(temp))) < 50
    assert link.resolve() == deep
    assert link.parent.stat().st_mode & 0o777 == 0o700
    assert socket_folder(deep) == link


def test_a_way_in_that_leads_elsewhere_is_replaced(deep: Path, temp: Path) -> None:
    link = socket_folder(deep)
    link.unlink()
    link.symlink_to(temp)
    assert socket_folder(deep).resolve() == deep


def test_a_place_that_others_can_enter_is_not_trusted(deep: Path, temp: Path) -> None:
    socket_folder(deep).parent.chmod(0o755)
    with pytest.raises(OwnerMustAct, match="open to others"):
        socket_folder(deep)
