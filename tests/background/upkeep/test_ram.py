from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.background.upkeep import ram
from gateway.background.upkeep.ram import ENOUGH, MemoryCeiling, ceiling, resident, trim
from gateway.config.machine import available_memory
from gateway.domain.errors import DatabaseDown
from gateway.domain.health import MemoryUse
from gateway.flow.signals import Signals


def test_what_the_process_holds_is_counted() -> None:
    before = resident()
    held = b"x" * 50_000_000
    assert resident() - before > 40_000_000
    assert len(held) == 50_000_000


def test_without_proc_the_peak_has_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = resident()
    monkeypatch.setattr(ram, "_STATM", tmp_path / "none")
    assert resident() >= now * 0.9


def test_freed_memory_can_be_given_back_any_number_of_times() -> None:
    before = resident()
    trim()
    trim()
    assert resident() <= before + 2**20


def test_the_ceiling_is_what_is_configured_else_half() -> None:
    assert ceiling(200) == 200 * 2**20
    assert ceiling(None) == max(available_memory() // 2, ENOUGH)


MB = 2**20


@dataclass
class Process:
    """Uses what a test says, under a ceiling of 100 MB; `freed` is what shedding gives back."""

    used: int = 0
    freed: int = 0
    broken: bool = False
    away: bool = False
    dropped: int = 0
    limits: list[int | None] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def drop(self) -> None:
        self.dropped += 1
        self.used -= self.freed
        if self.broken:
            raise RuntimeError("cannot let go")

    async def tell(self, text: str) -> None:
        if self.away:
            raise DatabaseDown("away")
        self.told.append(text)

    def memory(self) -> MemoryCeiling:
        signals = Signals()
        for _ in range(2):
            signals.memory_low.subscribe_call(self.drop)
        return MemoryCeiling(lambda: 100 * MB, signals, self.limits.append, self.tell, lambda: self.used * MB)


async def test_below_the_ceiling_nothing_happens() -> None:
    process = Process(used=99)
    memory = process.memory()
    assert memory.memory is None
    await memory.look()
    assert memory.memory == MemoryUse(99 * MB, 100 * MB, shedding=False)
    assert (process.dropped, process.limits, process.told) == (0, [], [])


async def test_an_episode_sheds_until_well_below_the_ceiling_and_tells_the_owner_once() -> None:
    process = Process(used=100)
    memory = process.memory()
    for used in (100, 120, 99, 85):
        process.used = used
        await memory.look()
        assert memory.memory == MemoryUse(used * MB, 100 * MB, shedding=True)
    assert (process.dropped, process.limits) == (4, [ram.RUNS_WHILE_SHEDDING])
    [told] = process.told
    assert told.startswith("I use 100 MB of memory; my ceiling is 100 MB (limits.memory_mb).")
    process.used = 84
    await memory.look()
    assert memory.memory == MemoryUse(84 * MB, 100 * MB, shedding=False)
    process.used = 101
    await memory.look()
    assert process.limits == [4, None, 4]
    assert len(process.told) == 2


async def test_a_cache_that_cannot_let_go_keeps_no_other_from_it() -> None:
    process = Process(used=100, broken=True)
    await process.memory().look()
    assert process.dropped == 2
    assert len(process.told) == 1


async def test_an_owner_who_cannot_be_told_now_is_told_later() -> None:
    process = Process(used=100, away=True)
    memory = process.memory()
    await memory.look()
    assert process.told == []
    process.away, process.used = False, 90
    await memory.look()
    assert len(process.told) == 1
