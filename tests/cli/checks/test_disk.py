import os
import subprocess
from pathlib import Path

import pytest

from gateway.cli.checks.disk import Room, check_disk, judge, room
from tests.cli.checks.patients import Examine

GIB = 1024**3


@pytest.mark.parametrize(
    ("left", "level"),
    [
        (Room(10 * GIB, 1_000_000), "ok"),
        (Room(10 * GIB, None), "ok"),
        (Room(GIB // 2, 1_000_000), "warn"),
        (Room(GIB // 100, 1_000_000), "fail"),
        (Room(10 * GIB, 10_000), "warn"),
        (Room(10 * GIB, 10), "fail"),
        (Room(GIB // 2, 10), "fail"),
        (Room(10 * GIB, 1_000_000, read_only=True), "fail"),
    ],
)
def test_little_room_is_told_with_what_to_do(left: Room, level: str) -> None:
    finding = judge(Path("/x"), left)

    assert finding.level == level
    assert bool(finding.fix) == (level != "ok")


def test_folders_on_one_file_system_are_one_finding(examine: Examine, tmp_path: Path) -> None:
    (finding,) = examine(check_disk)

    assert finding.check == "disk"
    assert finding.text.endswith(f"at {tmp_path}")


def test_a_full_read_only_file_system_is_seen_as_one(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=10,ro", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        seen = room(tmp_path)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)

    assert seen.read_only
    assert seen.bytes <= 65_536
    assert seen.files is not None
    assert seen.files < 10
