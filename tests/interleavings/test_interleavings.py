"""Schedules of single statements: none breaks an invariant, each replays exactly, and each old bug is found."""

import os
from collections.abc import Sequence

import pytest

from tests.conftest import FULL, one_of_a_class
from tests.interleavings.families import Family
from tests.interleavings.invariants import Violation
from tests.interleavings.plants import PLANTS, Plant, cancelled_in_one_pass, no_fence
from tests.interleavings.scheduler import Draws
from tests.interleavings.shrinking import shortest
from tests.interleavings.world import World

SHARDS = 10
SCHEDULES = int(os.environ.get("SUPACLAW_SCHEDULES", "20000" if FULL else "300"))
FAULTS = 2
MOST = 2_000
"""Schedules within which each of the bugs is found."""


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_no_order_of_statements_breaks_an_invariant(world: World, shard: int) -> None:
    """`SUPACLAW_SEED=n` runs one alone."""
    seeds = range(shard, SCHEDULES, SHARDS)
    if alone := os.environ.get("SUPACLAW_SEED"):
        seeds = range(int(alone), int(alone) + (shard == 0))
    for seed in seeds:
        draws = Draws(seed)
        try:
            await world.explore(draws, faults=FAULTS)
        except Violation:
            _, violation = await shortest(world, draws.drawn, faults=FAULTS)
            raise AssertionError(f"SUPACLAW_SEED={seed}, shortened: {violation}") from None


@pytest.mark.thorough
async def test_a_seed_replays_exactly(world: World) -> None:
    for seed in range(10):
        first = await world.explore(Draws(seed), faults=FAULTS)
        assert await world.explore(Draws(seed), faults=FAULTS) == first


@pytest.mark.parametrize(
    "plant", one_of_a_class(PLANTS, {no_fence, cancelled_in_one_pass}), ids=lambda plant: plant.__name__
)
async def test_an_old_bug_is_found(world: World, monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    """And the schedule that finds it is shortened, in `make chaos`."""
    if statements := plant(world, monkeypatch):
        await world.monitor.execute(statements)
    draws, violation = await first_that_fails(world, PLANTS[plant])
    print(f"{plant.__name__}: {str(violation).splitlines()[0]}")
    if not FULL:
        return
    drawn, violation = await shortest(world, draws.drawn, faults=FAULTS, families=PLANTS[plant])
    print(f"{len(drawn)} draws of {len(draws.drawn)}: {violation}")
    assert len(drawn) < len(draws.drawn)
    with pytest.raises(Violation):
        await world.explore(Draws(drawn), faults=FAULTS, families=PLANTS[plant])


async def first_that_fails(world: World, families: Sequence[Family]) -> tuple[Draws, Violation]:
    for seed in range(MOST):
        draws = Draws(seed)
        try:
            await world.explore(draws, faults=FAULTS, families=families)
        except Violation as violation:
            return draws, violation
    pytest.fail(f"{MOST} schedules don't find it")
