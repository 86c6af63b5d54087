"""The server's own memory follows the size of its data, unless its owner chose a value."""

import tempfile
from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.store.embedded.postmaster import buffer_options, socket_folder

MB = 2**20


def folder_of(place: Path, size: int, settings: str = "shared_buffers = 32MB   # the least\n", auto: str = "") -> Path:
    (place / "base" / "5").mkdir(parents=True)
    with (place / "base" / "5" / "16384").open("wb") as file:
        file.truncate(size)
    (place / "postgresql.conf").write_text(settings, encoding="utf-8")
    if auto:
        (place / "postgresql.auto.conf").write_text(auto, encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("size", "memory", "expected"),
    [
        (MB, 4096 * MB, 32 * MB),
        (100 * MB, 4096 * MB, 100 * MB),
        (2000 * MB, 4096 * MB, 512 * MB),
        (2000 * MB, 128 * MB, 32 * MB),
    ],
)
def test_as_much_as_the_data_within_an_eighth_of_the_machine(
    tmp_path: Path, size: int, memory: int, expected: int
) -> None:
    assert buffer_options(folder_of(tmp_path, size), memory) == f"-c shared_buffers={expected // 1024}kB"


@pytest.mark.parametrize(
    "settings", ["shared_buffers = 64MB\n", "  SHARED_BUFFERS '1GB' # mine\n", "shared_buffers=16384"]
)
def test_a_value_of_the_owner_holds(tmp_path: Path, settings: str) -> None:
    assert buffer_options(folder_of(tmp_path, 100 * MB, settings), 4096 * MB) == ""


def test_so_does_one_set_by_alter_system(tmp_path: Path) -> None:
    assert buffer_options(folder_of(tmp_path, 100 * MB, auto="shared_buffers = '48MB'\n"), 4096 * MB) == ""


def test_a_line_that_is_switched_off_is_no_choice(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 100 * MB, "#shared_buffers = 1GB\n")
    assert buffer_options(folder, 4096 * MB) == f"-c shared_buffers={100 * 1024}kB"


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
