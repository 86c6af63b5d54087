"""A shorter schedule that still fails: fewer draws, and draws of 0, which are no fault and nobody's turn."""

from collections.abc import Sequence

from tests.interleavings.families import FAMILIES, Family
from tests.interleavings.invariants import Violation
from tests.interleavings.scheduler import Draws
from tests.interleavings.world import World


async def shortest(
    world: World, drawn: list[int], *, faults: int, families: Sequence[Family] = FAMILIES
) -> tuple[list[int], Violation]:
    """The draws and the violation; raises `ValueError` if these draws don't fail.

    Each half goes if the rest still fails, then each quarter, and so on: about two tries for each draw.
    """
    if (found := await _violation(world, drawn, faults, families)) is None:
        raise ValueError("this schedule keeps all invariants")
    size = len(drawn)
    while size := size // 2:
        for start in range(0, len(drawn), size):
            rest = drawn[start + size :]
            simpler = [*drawn[:start], *[0] * size, *rest] if rest else drawn[:start]
            if simpler != drawn and (violation := await _violation(world, simpler, faults, families)) is not None:
                drawn, found = simpler, violation
    return drawn, found


async def _violation(world: World, drawn: list[int], faults: int, families: Sequence[Family]) -> Violation | None:
    try:
        await world.explore(Draws(drawn), faults=faults, families=families)
    except Violation as violation:
        return violation
    return None
