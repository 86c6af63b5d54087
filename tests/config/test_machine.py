import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.config.machine import SystemClock, available_memory

GB = 2**30


def machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="ascii")


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/a/b\n", {"a/memory.max": f"{GB // 4}\n", "a/b/memory.max": "max\n"}, GB // 4),
        ("0::/a/b\n", {"a/memory.max": "max\n", "a/b/memory.max": f"{GB // 8}\n"}, GB // 8),
        ("0::/\n", {"memory.max": f"{GB // 4}\n"}, GB // 4),
        ("4:cpu:/x\n9:memory,hugetlb:/docker/ab\n", {"memory/memory.limit_in_bytes": f"{GB // 4}\n"}, GB // 4),
        ("9:memory:/x\n", {"memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("0::/\n", {}, None),
    ],
)
def test_the_narrowest_control_group_counts(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int | None
) -> None:
    put(tmp_path / "cgroup", groups)
    for file, text in limits.items():
        put(tmp_path / "mount" / file, text)
    assert available_memory(tmp_path / "cgroup", tmp_path / "mount") == (expected or machine())


def test_a_system_without_control_groups_has_what_the_machine_has(tmp_path: Path) -> None:
    assert available_memory(tmp_path / "none", tmp_path) == machine()


async def test_time_is_in_utc_and_goes_on() -> None:
    clock = SystemClock()
    before = clock.monotonic()

    await clock.sleep(0)

    assert clock.monotonic() >= before
    assert clock.now().tzinfo is UTC
    assert clock.now() >= datetime(2026, 1, 1, tzinfo=UTC)
