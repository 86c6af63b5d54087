import errno
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.workspace.files import uploads as incoming_module
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.uploads import STALE_SECONDS, received, unchanged

DAY = "2026-11-21"


async def pieces(*data: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece
    if error is not None:
        raise error


async def keep(root: Path, data: bytes, name: str = "a.txt") -> str:
    async with received(root, pieces(data), 1000) as incoming:
        return incoming.settle(DAY, name)


def there(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / "uploads").rglob("*") if path.is_file())


async def test_a_file_lies_whole_under_its_day(tmp_path: Path) -> None:
    async with received(tmp_path, pieces(b"gr", b"", b"een"), 1000) as incoming:
        assert (incoming.size, incoming.sha256) == (5, hashlib.sha256(b"green").hexdigest())
        assert incoming.settle(DAY, "tea.txt") == f"uploads/{DAY}/tea.txt"
    assert there(tmp_path) == [f"uploads/{DAY}/tea.txt"]
    assert (tmp_path / "uploads" / DAY / "tea.txt").read_bytes() == b"green"


async def test_what_was_not_settled_is_gone(tmp_path: Path) -> None:
    async with received(tmp_path, pieces(b"green"), 1000):
        assert len(there(tmp_path)) == 1
    assert there(tmp_path) == []


async def test_a_stream_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        async with received(tmp_path, pieces(b"gre", error=ConnectionError()), 1000):
            pytest.fail("it is not whole")
    assert there(tmp_path) == []


async def test_more_than_the_most_is_refused_while_it_comes(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError) as caught:
        async with received(tmp_path, pieces(*[bytes(100)] * 11, error=AssertionError("read on")), 1000):
            pytest.fail("it is too large")
    assert caught.value.code == "too_large"
    assert there(tmp_path) == []


async def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkspaceError) as caught:
        await keep(tmp_path, b"green")
    assert caught.value.code == "disk_full"
    assert there(tmp_path) == []


async def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    assert [await keep(tmp_path, data) for data in (b"1", b"2", b"3")] == [
        f"uploads/{DAY}/{name}" for name in ("a.txt", "a-2.txt", "a-3.txt")
    ]


async def test_what_an_earlier_try_left_there_is_found_again(tmp_path: Path) -> None:
    first = [await keep(tmp_path, data) for data in (b"1", b"2")]
    assert [await keep(tmp_path, data) for data in (b"1", b"2")] == first


async def test_the_text_of_another_file_is_never_taken_for_a_file(tmp_path: Path) -> None:
    await keep(tmp_path, b"pdf", "a.pdf")
    (tmp_path / "uploads" / DAY / "a.pdf.txt").write_bytes(b"text")
    assert await keep(tmp_path, b"text", "a.pdf.txt") == f"uploads/{DAY}/a.pdf-2.txt"


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "uploads").mkdir(parents=True)
    outside.mkdir()
    (root / "uploads" / DAY).symlink_to(outside)
    with pytest.raises(WorkspaceError):
        await keep(root, b"green")
    assert list(outside.iterdir()) == []


async def test_what_a_crash_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    for name, age in (("old", STALE_SECONDS + 60), ("new", 60.0)):
        (uploads / f".writing-{name}").touch()
        os.utime(uploads / f".writing-{name}", (time.time() - age,) * 2)
    await keep(tmp_path, b"green")
    assert there(tmp_path) == ["uploads/.writing-new", f"uploads/{DAY}/a.txt"]


async def test_a_name_used_too_often_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_module, "name_candidates", lambda name: iter([name]))
    await keep(tmp_path, b"1")
    with pytest.raises(WorkspaceError, match="too many files named like"):
        await keep(tmp_path, b"2")


def test_a_file_that_was_changed_or_is_gone_is_not_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"green")
    sha256 = hashlib.sha256(b"green").hexdigest()
    assert unchanged(tmp_path, "a", sha256)
    assert not unchanged(tmp_path, "b", sha256)
    (tmp_path / "a").write_bytes(b"grey")
    assert not unchanged(tmp_path, "a", sha256)
