from pathlib import Path

import pytest

from gateway.background.watch import footprint
from gateway.background.watch.footprint import ENOUGH, ceiling, resident, trim
from gateway.config.machine import available_memory


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


def test_the_ceiling_is_what_is_configured_else_half() -> None:
    assert ceiling(200) == 200 * 2**20
    assert ceiling(None) == max(available_memory() // 2, ENOUGH)
