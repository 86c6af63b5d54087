"""A command takes no more of the machine than it may, and leaves the rest to others."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.sandbox.command import Command, Ending, Limits, Report, Tier
from gateway.sandbox.jail.supervisor import Call, Harmless, start_handlers
from gateway.sandbox.jail.usage import disk_is_low, memory_is_low
from gateway.sandbox.workshop import Workshop
from tests.sandbox.tiers import confines

MB = 1 << 20


def _disk(free: int, whole: int, files: int, all_files: int) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, whole, free, free, all_files, files, files, 0, 255))


@pytest.mark.parametrize(
    ("found", "low"),
    [
        (_disk(60_000, 1_000_000, 60_000, 1_000_000), False),
        (_disk(49_999, 1_000_000, 60_000, 1_000_000), True),
        (_disk(60_000, 1_000_000, 49_999, 1_000_000), True),
        (_disk(60_000, 1_000_000, 0, 0), False),  # any number of files
        (_disk(6_000, 8_000, 60_000, 1_000_000), True),  # a small one, of which the gateway needs more
    ],
)
def test_the_last_of_a_disk_belongs_to_others(found: os.statvfs_result, low: bool) -> None:
    assert disk_is_low(found, Limits(spare_disk_bytes=100 * MB)) is low


@pytest.mark.parametrize(("available", "low"), [(600, False), (499, True)])
def test_so_does_the_last_of_the_memory(tmp_path: Path, available: int, low: bool) -> None:
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal:  10000 kB\nMemFree: 1 kB\nMemAvailable:  {available} kB\nHugePages_Total:  0\n")
    assert memory_is_low(5, str(path)) is low


def test_no_more_is_started_than_may_run_and_what_has_ended_makes_room() -> None:
    running = 2
    start = start_handlers(lambda: running, 3)["clone"]

    def started() -> bool:
        nonlocal running
        try:
            start(Call(0, 0, "clone", (), -1))
        except Harmless:
            running += 1
            return True
        except BlockingIOError:
            return False
        raise AssertionError("it is neither made nor refused")

    assert [started() for _ in range(3)] == [True, False, False]
    running = 1
    assert [started() for _ in range(3)] == [True, True, False]


needs_mounts = pytest.mark.skipif(
    not confines() or os.getuid() != 0 or shutil.which("mount") is None, reason="only root can make a small disk"
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m,nr_inodes=4000", "small", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    made = Workshop(tmp_path / "scratch")
    yield made
    await made.close()


async def _run(workshop: Workshop, place: Path, line: str) -> tuple[Report, str]:
    limits = Limits(seconds=120, spare_disk_bytes=0)
    command = Command(("/bin/bash", "-c", line), str(place), Tier.NAMESPACES, workshop.landlock, limits=limits)
    running = await workshop.start(command)
    output = b"".join([piece async for piece in running.pieces()])
    report = await running.report()
    running.close()
    return report, output.decode()


@needs_mounts
@pytest.mark.parametrize(
    "line",
    [
        "for i in {1..100}; do head -c 500000 /dev/zero >$i; sleep 0.02; done",
        "for i in {1..4000}; do >$i; ((i % 50)) || sleep 0.05; done",
        "mkdir a; for i in {1..4000}; do ln -s x a/$i || exit; ((i % 50)) || sleep 0.05; done",
    ],
    ids=["bytes", "files", "links"],
)
async def test_it_is_ended_before_the_disk_is_full_and_others_can_delete(
    workshop: Workshop, disk: Path, line: str
) -> None:
    report, _ = await _run(workshop, disk, line)
    assert report.ending is Ending.DISK
    (disk / "others").write_bytes(bytes(100_000))

    report, output = await _run(workshop, disk, "echo x >new; mv others moved; ls | wc -l; cat others | wc -c")
    assert report.ending is Ending.EXITED
    assert output.startswith("The disk has no space or no files to spare: this command can only read and delete.\n")
    assert output.endswith("\n100000\n")
    assert not (disk / "new").exists()
    assert (disk / "others").exists()

    report, output = await _run(workshop, disk, "rm -rf *; ls | wc -l")
    assert output.endswith("\n0\n")
    report, output = await _run(workshop, disk, "echo x >new && cat new")
    assert (report.ending, output) == (Ending.EXITED, "x\n")


@needs_mounts
async def test_where_nothing_could_refuse_it_to_write_it_does_not_start(workshop: Workshop, disk: Path) -> None:
    limits = Limits(spare_percent=100)
    command = Command(("/bin/true",), str(disk), Tier.NAMESPACES, landlock=0, limits=limits)
    running = await workshop.start(command)
    report = await running.report()
    running.close()
    assert report.ending is Ending.REFUSED
    assert report.problem == "The disk has no space or no files to spare; delete files first"
