import errno
import os
from pathlib import Path

import pytest

from gateway.config.data.files import create_private, disk_full, error_type, has_room, overwrite
from gateway.domain.errors import DatabaseDown, DiskFull, OwnerMustAct

NO_ROOM = OSError(errno.ENOSPC, "No space left on device")


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_a_file_is_made_once_private_and_without_leftovers(tmp_path: Path) -> None:
    create_private(tmp_path / "keys" / "one", b"first")
    create_private(tmp_path / "keys" / "one", b"second")
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "keys").iterdir()] == [("one", b"first")]
    assert (tmp_path / "keys" / "one").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700


def test_what_is_written_in_place_leaves_nothing_of_what_was_longer(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    overwrite(handle, b"a longer text")
    overwrite(handle, b"short")
    os.close(handle)
    assert (tmp_path / "file").read_bytes() == b"short"


@pytest.mark.parametrize(
    "error",
    [
        NO_ROOM,
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        DiskFull("of a server"),
        caused(OwnerMustAct("the backup broke off"), NO_ROOM),
        ExceptionGroup("", [DatabaseDown("gone"), ExceptionGroup("", [NO_ROOM])]),
    ],
)
def test_a_full_disk_is_found_wherever_it_hides(error: Exception) -> None:
    assert disk_full(error)


@pytest.mark.parametrize("error", [OSError(errno.EROFS, "Read-only file system"), DatabaseDown("gone"), ValueError()])
def test_other_errors_are_no_full_disk(error: Exception) -> None:
    assert not disk_full(error)
    assert not disk_full(ExceptionGroup("", [error]))


def test_only_a_full_disk_can_be_waited_for(tmp_path: Path) -> None:
    assert error_type(NO_ROOM) is DiskFull
    assert error_type(PermissionError(errno.EACCES, "denied")) is OwnerMustAct
    assert has_room(tmp_path)
