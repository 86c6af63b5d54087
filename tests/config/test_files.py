import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.config.data.files import read_regular, replace_regular, write_regular

Kind = Callable[[Path], None]


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path)


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere") / "file")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


KINDS = pytest.mark.parametrize("kind", [os.mkfifo, os.mkdir, zeros, loop, dangling, listening])


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(tmp_path / "file", 4)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular(tmp_path / "link") == b"text"
    write_regular(tmp_path / "link", b"more")
    assert (tmp_path / "file").read_bytes() == b"more"


@KINDS
def test_what_is_no_file_is_neither_waited_for_nor_read(tmp_path: Path, kind: Kind) -> None:
    kind(tmp_path / "file")
    before = set(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else set()
    with pytest.raises(OSError, match=r"not a regular file|directory|levels of symbolic links|No such"):
        read_regular(tmp_path / "file")
    assert not before or set(os.listdir("/proc/self/fd")) == before


@KINDS
@pytest.mark.parametrize("write", [write_regular, replace_regular])
def test_what_is_in_the_place_of_a_file_of_ours_is_moved_aside_and_told(
    tmp_path: Path, kind: Kind, write: Callable[[Path, bytes], None]
) -> None:
    kind(tmp_path / "file")
    with capture_logs() as logs:
        write(tmp_path / "file", b"text")
    assert (tmp_path / "file").read_bytes() == b"text"
    assert (tmp_path / "file").lstat().st_mode & 0o777 == 0o600
    assert os.path.lexists(tmp_path / "file.aside")
    assert [(log["event"], log["path"]) for log in logs] == [("file.moved_aside", str(tmp_path / "file"))]


@KINDS
def test_what_was_moved_aside_before_stays(tmp_path: Path, kind: Kind) -> None:
    for _ in range(3):
        (tmp_path / "file").unlink(missing_ok=True)
        kind(tmp_path / "file")
        write_regular(tmp_path / "file", b"text")
    assert sorted(os.listdir(tmp_path)) == ["file", "file.aside", "file.aside1", "file.aside2"]


def test_the_folder_is_made_again(tmp_path: Path) -> None:
    replace_regular(tmp_path / "keys" / "file", b"text")
    assert (tmp_path / "keys" / "file").read_bytes() == b"text"
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700


def test_a_file_that_is_no_folder_stays_where_a_folder_is_needed(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a letter")
    with pytest.raises(FileExistsError):
        write_regular(tmp_path / "data" / "health", b"x")
    assert (tmp_path / "data").read_text() == "a letter"
