import os
from pathlib import Path

import pytest

from gateway.background.watch import footprint
from gateway.background.watch.footprint import ENOUGH, available, ceiling, resident, trim

GB = 2**30


def machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="ascii")


def test_what_the_process_holds_is_counted() -> None:
    before = resident()
    held = b"x" * 50_000_000
    assert resident() - before > 40_000_000
    assert len(held) == 50_000_000


def test_without_proc_the_peak_has_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = resident()
    monkeypatch.setattr(footprint, "_STATM", tmp_path / "none")
    assert resident() >= now * 0.9


def test_freed_memory_can_be_given_back_any_number_of_times() -> None:
    before = resident()
    trim()
    trim()
    assert resident() <= before + 2**20


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
    assert available(tmp_path / "cgroup", tmp_path / "mount") == (expected or machine())


def test_a_system_without_control_groups_has_what_the_machine_has(tmp_path: Path) -> None:
    assert available(tmp_path / "none", tmp_path) == machine()


def test_the_ceiling_is_what_is_configured_else_half() -> None:
    assert ceiling(200) == 200 * 2**20
    assert ceiling(None) == max(available() // 2, ENOUGH)
