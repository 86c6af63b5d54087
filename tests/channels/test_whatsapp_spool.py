from pathlib import Path

import pytest

from channels.whatsapp import store
from channels.whatsapp.store import Spool


def contents(spool: Spool, most: int = 100) -> list[bytes]:
    return [data for _, data in spool.head(most)]


def test_what_was_put_comes_out_in_order_also_after_a_restart(tmp_path: Path) -> None:
    first = Spool(tmp_path)
    for number in range(12):
        first.put(b"%d" % number)
    first.drop([name for name, _ in first.head(2)])
    second = Spool(tmp_path)
    second.put(b"12")
    assert contents(second) == [b"%d" % number for number in range(2, 13)]
    assert contents(second, 1) == [b"2"]


def test_what_a_crash_left_half_written_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "torn").write_bytes(b"half")
    spool = Spool(tmp_path)
    assert contents(spool) == []
    spool.put(b"whole")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


def test_what_was_dropped_stays_away(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.put(b"one")
    spool.drop([name for name, _ in spool.head(9)])
    assert contents(spool) == []
    assert contents(Spool(tmp_path)) == []


def test_a_full_spool_takes_nothing_more_until_it_is_emptied_or_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_WAITING", 1)
    spool = Spool(tmp_path)
    spool.put(b"1")
    with pytest.raises(OSError, match="wait already"):
        spool.put(b"2")
    spool.drop([name for name, _ in spool.head(1)])
    spool.put(b"2")
    spool.closed.set()
    spool.put(b"3")
    assert contents(spool) == [b"2", b"3"]


def test_a_disk_that_stays_full_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError("No space left on device")

    spool = Spool(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                spool.put(b"1")
        assert len(list(tmp_path.iterdir())) == 1
    spool.put(b"2")
    assert contents(Spool(tmp_path)) == [b"2"]
