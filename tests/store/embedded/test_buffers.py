"""The server's own memory follows the size of its data, unless its owner chose a value."""

from pathlib import Path

import pytest

from gateway.store.embedded.buffers import buffer_options

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
