import os
import subprocess
from collections import deque
from collections.abc import Iterator
from datetime import date
from itertools import cycle
from pathlib import Path
from uuid import UUID

import pytest

from gateway.logs import DailyFile, SessionFiles

DAY = date(2026, 1, 1)
IDS = [UUID(int=number) for number in range(1, 5)]


def test_each_day_has_its_file_and_the_newest_is_found_by_one_name(tmp_path: Path) -> None:
    days = iter([date(2026, 1, 1), date(2026, 1, 1), date(2026, 1, 2)])
    file = DailyFile(tmp_path, lambda: next(days))

    for text in ("one", "two", "three"):
        file.write(text)
    file.close()

    assert (tmp_path / "gateway-2026-01-01.log").read_text() == "one\ntwo\n"
    assert (tmp_path / "gateway-2026-01-02.log").read_text() == "three\n"
    assert (tmp_path / "gateway.log").read_text() == "three\n"


def test_a_sessions_lines_lie_in_a_folder_of_its_own_by_day_for_the_owners_eyes_only(tmp_path: Path) -> None:
    days = iter([date(2026, 1, 1), date(2026, 1, 1), date(2026, 1, 2)])
    files = SessionFiles(tmp_path / "logs", lambda: next(days))

    files.write(IDS[0], "one")
    files.write(IDS[1], "other")
    files.write(IDS[0], "two")
    files.close()

    folder = tmp_path / "logs" / "sessions" / str(IDS[0])
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "2026-01-01.log": "one\n",
        "2026-01-02.log": "two\n",
    }
    assert (folder.parent / str(IDS[1]) / "2026-01-01.log").read_text() == "other\n"
    for path in (tmp_path / "logs", folder.parent, folder):
        assert path.stat().st_mode & 0o777 == 0o700
    assert (folder / "2026-01-01.log").stat().st_mode & 0o777 == 0o600


def test_only_the_sessions_written_to_last_keep_their_file_open(tmp_path: Path) -> None:
    def handles() -> list[str]:
        return sorted(UUID(Path(link).parent.name).int for link in _links() if link.startswith(str(tmp_path)))

    files = SessionFiles(tmp_path, lambda: DAY, most=2)
    for number in (0, 1, 0, 2):
        files.write(IDS[number], "x")

    assert handles() == [1, 3]
    files.close()
    assert handles() == []
    assert (tmp_path / "sessions" / str(IDS[0]) / "2026-01-01.log").read_text() == "x\nx\n"


def test_many_sessions_in_turn_lose_no_line(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path, lambda: DAY, most=2)
    turns = cycle(IDS)

    for number in range(40):
        files.write(next(turns), str(number))
    files.close()

    logs = [(tmp_path / "sessions" / str(id) / "2026-01-01.log").read_text().split() for id in IDS]
    assert logs == [[str(number) for number in range(start, 40, 4)] for start in range(4)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_line_that_a_full_disk_tore_is_ended_before_the_next_one(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 56 * 1024)
    files = SessionFiles(small_disk, lambda: DAY)
    lines = [f"{number:03} {'y' * 1000}" for number in range(100)]
    with pytest.raises(OSError, match="No space"):
        deque((files.write(IDS[0], line) for line in lines), maxlen=0)
    filler.unlink()
    files.write(IDS[0], "after")
    files.close()

    said = (small_disk / "sessions" / str(IDS[0]) / "2026-01-01.log").read_text().splitlines()
    assert said[-1] == "after"
    assert said[0] == lines[0]
    assert 2 < len(said) < 12


def test_a_line_torn_before_a_restart_is_ended_too(tmp_path: Path) -> None:
    (tmp_path / "gateway-2026-01-01.log").write_text('{"event": "to')
    file = DailyFile(tmp_path, lambda: DAY)

    file.write("{}")
    file.close()

    assert (tmp_path / "gateway-2026-01-01.log").read_text() == '{"event": "to\n{}\n'


def _links() -> list[str]:
    return [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)]


def _is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")
